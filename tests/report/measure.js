// What a reader's eye would complain about, measured in the page: overflow, overlaps, contrast, marks.
() => {
  const found = { overflow: [], overlaps: [], faint: [], unnamed: [], texts: 0 };
  const root = document.documentElement;
  const wide = root.clientWidth;
  if (root.scrollWidth > wide) found.overflow.push(`page: ${root.scrollWidth} > ${wide}`);

  const clipOf = (element) => {
    let box = { left: 0, right: wide, top: -1e9, bottom: 1e9 };
    for (let e = element; e; e = e.parentElement) {
      if (e.matches(".scroll") || getComputedStyle(e).clipPath !== "none") {
        const r = e.getBoundingClientRect();
        box = { left: Math.max(box.left, r.left), right: Math.min(box.right, r.right),
                top: Math.max(box.top, r.top), bottom: Math.min(box.bottom, r.bottom) };
      }
    }
    return box;
  };
  const hidden = (element) => {
    for (let e = element; e; e = e.parentElement) if (getComputedStyle(e).clipPath !== "none") return true;
    return false;
  };
  const light = (c) => {
    const lin = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * lin(c[0]) + 0.7152 * lin(c[1]) + 0.0722 * lin(c[2]);
  };
  const colour = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0.99) return c;
    }
    return getComputedStyle(root).colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches
      ? [0, 0, 0] : [255, 255, 255];
  };

  const boxes = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    const said = node.data.trim();
    if (!said || hidden(element)) continue;
    found.texts += 1;
    const style = getComputedStyle(element);
    const ink = colour(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.faint.push(`${said.slice(0, 40)}: ${ratio.toFixed(2)}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    const clip = clipOf(element);
    for (const r of range.getClientRects()) {
      if (!element.closest(".scroll") && (r.right > wide + 1 || r.left < -1)) {
        found.overflow.push(`${said.slice(0, 40)}: ${r.left.toFixed(0)} to ${r.right.toFixed(0)}`);
      }
      const box = { left: Math.max(r.left, clip.left), right: Math.min(r.right, clip.right), top: r.top, bottom: r.bottom, node, said };
      if (box.right - box.left > 1) boxes.push(box);
    }
  }
  boxes.sort((p, q) => p.top - q.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom - 1; j++) {
      const [p, q] = [boxes[i], boxes[j]];
      if (p.node === q.node) continue;
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      // Two lines of one paragraph may share the font's own leading.
      if (x > 1 && y > 3) found.overlaps.push(`${p.said.slice(0, 30)} | ${q.said.slice(0, 30)}: ${x.toFixed(1)} x ${y.toFixed(1)}`);
    }
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption || !table.caption.textContent.trim()) found.unnamed.push("a table without a caption");
    if (table.querySelector("th:not([scope])")) found.unnamed.push(`a heading without scope: ${table.caption.textContent}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (svg.getAttribute("role") !== "img" || !svg.getAttribute("aria-label")) found.unnamed.push("an unnamed chart");
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) found.unnamed.push("an id is used twice");
  found.active = document.querySelectorAll("script, iframe, object, embed, img, link, form, [onclick], [onload]").length;
  return found;
}
