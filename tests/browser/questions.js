// Runs behind the page's own script, and tells what a reader would find.
addEventListener('load', () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const text = (what) => all(what).map((element) => element.textContent).join(' ');
  const exact = (row, p) => Number(row.querySelector(`[data-p="${p}"]`).dataset.us);
  const rows = all('#passes tbody tr').map((row) => ({
    name: row.dataset.pass,
    reads: Number(row.querySelector('[data-value]').dataset.value),
    p50: exact(row, 'p50'), p99: exact(row, 'p99'), 'p99.9': exact(row, 'p99.9'), max: exact(row, 'max'),
  }));
  const isInside = (curve) => {
    const plot = curve.ownerSVGElement.viewBox.baseVal, box = curve.getBBox();
    return box.width > 50 && box.height > 20 && box.x >= 0 && box.y >= 0
      && box.x + box.width <= plot.width && box.y + box.height <= plot.height;
  };
  const plot = document.getElementById('percentiles');
  const isHidden = (element) => getComputedStyle(element).display === 'none';
  const hidden_first = isHidden(plot.querySelector('.cross')) && isHidden(document.getElementById('readout'));
  const place = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent('pointermove', {
    clientX: place.left + place.width * .6, clientY: place.top + 20, bubbles: true,
  }));
  const paper = getComputedStyle(document.body).backgroundColor;
  const found = {
    rows,
    advice: text('#advice p'),
    facts: text('#configuration') + text('#machine'),
    percentile_curves: all('#percentiles path.curve').length,
    cdf_curves: all('#cdf path.curve').length,
    curves_inside: all('path.curve').every(isInside),
    heat_maps: all('svg.heat').length,
    heat_cells: all('svg.heat rect.cell').length,
    surface_cells: all('#surface td.cell').length,
    advised_cells: all('#surface td.advised').length,
    readout: document.getElementById('readout').hidden ? '' : text('#readout'),
    hidden_first,
    overflows: document.documentElement.scrollWidth > innerWidth,
    is_dark: matchMedia('(prefers-color-scheme: dark)').matches,
    paper,
  };
  const pre = document.createElement('pre');
  pre.id = 'found';
  pre.textContent = JSON.stringify(found);
  document.body.append(pre);
});
