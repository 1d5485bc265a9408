//! How the answers of each node lay over time: counts in cells of time and latency.

use std::time::Duration;

/// Cells along the time.
pub(crate) const COLUMNS: usize = 96;
/// Cells along the latency.
pub(crate) const ROWS: usize = 30;
/// Where the first row starts, in nanoseconds.
const FIRST_NS: f64 = 32_000.0;
/// Rows to each doubling.
const PER_DOUBLING: f64 = 2.0;

/// Counts of answered copies by node, time and latency. Its size is fixed.
#[derive(Clone, Debug)]
pub(crate) struct Heat {
    span: Duration,
    /// One grid for each node, column by column.
    nodes: Vec<Vec<u32>>,
}

impl Heat {
    /// Over `span` (above zero), for so many nodes.
    pub(crate) fn new(nodes: usize, span: Duration) -> Heat {
        Heat { span, nodes: vec![vec![0; COLUMNS * ROWS]; nodes] }
    }

    /// A copy that a node was sent `since` the start took `time`. What is out of the grid counts in its
    /// outermost cells.
    pub(crate) fn add(&mut self, node: usize, since: Duration, time: Duration) {
        let share = since.as_secs_f64() / self.span.as_secs_f64().max(1e-9);
        let column = ((share * COLUMNS as f64) as usize).min(COLUMNS - 1);
        let above = (time.as_nanos() as f64 / FIRST_NS).max(1.0).log2();
        let row = ((above * PER_DOUBLING) as usize).min(ROWS - 1);
        if let Some(count) = self.nodes.get_mut(node).map(|grid| &mut grid[column * ROWS + row]) {
            *count = count.saturating_add(1);
        }
    }

    /// Seconds that it spans.
    pub(crate) fn span_s(&self) -> f64 {
        self.span.as_secs_f64()
    }

    /// Where the rows start, and the last one ends, in microseconds.
    pub(crate) fn bounds_us() -> Vec<f64> {
        (0..=ROWS).map(|row| FIRST_NS * (row as f64 / PER_DOUBLING).exp2() / 1e3).collect()
    }

    /// The cells of a node that are not empty: column, row, count.
    pub(crate) fn cells(&self, node: usize) -> Vec<(usize, usize, u32)> {
        let Some(grid) = self.nodes.get(node) else { return Vec::new() };
        let cells = grid.iter().enumerate().filter(|(_, count)| **count > 0);
        cells.map(|(at, count)| (at / ROWS, at % ROWS, *count)).collect()
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.len() * COLUMNS * ROWS * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a copy falls into a cell that does not hold its time and latency, or one out of the grid is
    /// lost.
    #[test]
    fn cells_hold_what_was_added() {
        let mut heat = Heat::new(2, Duration::from_secs(96));
        heat.add(1, Duration::from_millis(2_500), Duration::from_millis(5));
        heat.add(1, Duration::from_secs(1_000), Duration::from_secs(1_000));
        heat.add(1, Duration::ZERO, Duration::ZERO);
        heat.add(7, Duration::ZERO, Duration::ZERO);
        assert_eq!(heat.cells(0), []);
        let cells = heat.cells(1);
        assert_eq!((cells[0], cells[2]), ((0, 0, 1), (COLUMNS - 1, ROWS - 1, 1)));
        let (column, row, _) = cells[1];
        let bounds = Heat::bounds_us();
        assert_eq!(column, 2);
        assert!(bounds[row] <= 5_000.0 && 5_000.0 < bounds[row + 1], "row {row}");
    }
}
