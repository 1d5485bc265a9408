// Shows the latencies of all passes under the pointer. Everything else on the page needs no script.
(() => {
  const plot = document.getElementById('percentiles');
  const facts = JSON.parse(document.getElementById('curves').textContent);
  const readout = document.getElementById('readout');
  if (!plot || !readout || facts.curves.length === 0) return;
  const cross = plot.querySelector('.cross');
  const time = (us) => us < 1000 ? us.toFixed(0) + ' us'
    : us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + ' ms' : (us / 1e6).toFixed(2) + ' s';
  const at = (points, quantile) => {
    let found = points[0][1];
    for (const [q, us] of points) { if (q > quantile) break; found = us; }
    return found;
  };
  plot.addEventListener('pointermove', (event) => {
    const box = plot.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * facts.width;
    if (x < facts.left || x > facts.right) return;
    const share = (x - facts.left) / (facts.right - facts.left);
    const quantile = 1 - Math.pow(10, -facts.nines * share);
    const lines = facts.curves.map((curve) => {
      const line = document.createElement('div');
      const key = document.createElement('span');
      key.className = 'key k' + curve.place;
      line.append(key, curve.name + ' ' + time(at(curve.points, quantile)));
      return line;
    });
    const head = document.createElement('div');
    const digits = Math.max(0, Math.ceil(facts.nines * share) - 1);
    head.textContent = 'p' + (quantile * 100).toFixed(digits);
    readout.replaceChildren(head, ...lines);
    readout.hidden = false;
    cross.setAttribute('x1', x);
    cross.setAttribute('x2', x);
    cross.removeAttribute('hidden');
  });
  plot.addEventListener('pointerleave', () => {
    readout.hidden = true;
    cross.setAttribute('hidden', '');
  });
})();
