"use strict";
// Draws the curves of the runs whose numbers lie in the element #runs. SVG is written as text, so
// that the browser's own parser knows it for SVG.
const data = JSON.parse(document.getElementById("runs").textContent);
const hidden = new Set();
const color = (i) => `var(--c${i % 7})`;
const UNITS = { round: "rounds", megabytes: "MB", seconds: "s" };
const escape = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

function show(v) {
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e6 || size < 1e-4) return v.toExponential(2);
  return size >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(4)));
}

// an axis from numbers to pixels, and the numbers worth a tick
function axis(low, high, from, to, log, wanted) {
  if (log) {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    const ticks = [];
    for (let e = Math.floor(a); e <= Math.ceil(b); e++)
      for (const m of b - a > 3 ? [1] : [1, 2, 5]) {
        const v = m * 10 ** e;
        if (v >= low * 0.999 && v <= high * 1.001) ticks.push(Number(v.toPrecision(3)));
      }
    return { ticks, at: (v) => from + ((Math.log10(v) - a) / (b - a || 1)) * (to - from) };
  }
  const rough = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
    ticks.push(Number((k * step).toPrecision(12)));
  return { ticks, at: (v) => from + ((v - low) / (high - low || 1)) * (to - from) };
}

class Chart {
  static count = 0;

  constructor(spec) {
    Object.assign(this, spec);
    this.box = document.createElement("div");
    this.box.className = "chart";
    this.box.innerHTML = `<header><h2>${escape(data.labels[this.y])}</h2><div></div></header>
      <div class="plot"></div><div class="tip" hidden></div>`;
    [this.plot, this.tip] = [this.box.querySelector(".plot"), this.box.querySelector(".tip")];
    this.switches = this.box.querySelector("header div");
    this.plot.addEventListener("pointermove", (e) => this.point(e));
    this.plot.addEventListener("pointerdown", (e) => this.point(e));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.clip = `clip${Chart.count++}`;
    this.positive = this.low === null && this.runs(true).every((r) => r.ys.every((v) => v === null || v > 0));
    this.controls();
  }

  // the runs that are shown (or all): their numbers and the color they keep
  runs(all) {
    return data.runs
      .map((r, i) => ({ name: r.name, i, xs: r.values[this.x], ys: r.values[this.y] }))
      .filter((r) => all || !hidden.has(r.i));
  }

  controls() {
    const button = (name, value, on, words) =>
      `<button type="button" data-${name}="${value}" aria-pressed="${on}">${words}</button>`;
    const xs = data.against.map((x) => button("x", x, x === this.x, UNITS[x] || escape(x)));
    const log = this.positive ? `<span class="switch">${button("log", "", this.log, "log")}</span>` : "";
    this.switches.innerHTML = `<span class="switch">${xs.join("")}</span>${log}`;
    for (const b of this.switches.querySelectorAll("button"))
      b.addEventListener("click", () => {
        if (b.dataset.x) this.x = b.dataset.x;
        else this.log = !this.log;
        this.controls();
        this.draw();
      });
  }

  draw() {
    this.leave();
    const width = Math.max(260, this.plot.clientWidth);
    const height = Math.round(Math.min(300, Math.max(210, width * 0.62)));
    const [left, right, top, bottom] = [52, width - 12, 10, height - 38];
    const shown = this.runs(false);
    const xs = this.runs(true).flatMap((r) => r.xs); // hiding a run must not move the axes
    const ys = this.runs(true).flatMap((r) => r.ys.filter((v) => v !== null));
    if (!ys.length) return void (this.plot.textContent = "nothing to draw: no finite value");
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    const around = 0.5 * Math.abs(low) || 1; // of a flat line
    if (low === high) [low, high] = [low - around, high + around];
    if (this.low !== null) low = Math.min(this.low, high);
    const log = this.log && low > 0;
    if (log) [low, high] = [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
    else [low, high] = [low - (this.low === null ? 0.04 : 0) * (high - low), high + 0.04 * (high - low)];
    const X = axis(Math.min(...xs), Math.max(...xs), left, right, false, width < 380 ? 4 : 6);
    const Y = axis(low, high, bottom, top, log, 5);
    const out = Y.ticks.map((v) => `<line class="grid" x1="${left}" x2="${right}" y1="${Y.at(v)}" y2="${Y.at(v)}"/>
      <text x="${left - 7}" y="${Y.at(v) + 4}" text-anchor="end">${show(v)}</text>`);
    // a number at the end of the axis ends where the chart does
    const anchor = (v) => (X.at(v) + 4 * show(v).length > width ? "end" : "middle");
    const place = (v) => (anchor(v) === "end" ? width - 1 : X.at(v));
    out.push(...X.ticks.map((v) => `<text x="${place(v)}" y="${bottom + 17}" text-anchor="${anchor(v)}">${show(v)}</text>`));
    out.push(`<text x="${(left + right) / 2}" y="${height - 3}" text-anchor="middle">${escape(data.labels[this.x])}</text>`);
    out.push(`<clipPath id="${this.clip}"><rect x="${left - 4}" y="0" width="${right - left + 8}" height="${bottom}"/></clipPath>`);
    for (const r of shown) out.push(this.curve(r, X, Y));
    out.push(`<g class="marks"></g>`);
    const words = `${data.labels[this.y]} against ${data.labels[this.x]}`;
    this.plot.innerHTML = `<svg role="img" aria-label="${escape(words)}" viewBox="0 0 ${width} ${height}">${out.join("")}</svg>`;
    Object.assign(this, { X, Y, shown, width, top, bottom });
  }

  curve(r, X, Y) {
    let path = "";
    let pen = "M";
    r.ys.forEach((v, k) => {
      if (v === null) return void (pen = "M");
      path += `${pen}${X.at(r.xs[k]).toFixed(1)} ${Y.at(v).toFixed(1)}`;
      pen = "L";
    });
    const k = r.ys.length - 1;
    const end = r.ys[k] === null ? "" : `<circle cx="${X.at(r.xs[k])}" cy="${Y.at(r.ys[k])}" r="3" fill="${color(r.i)}"/>`;
    return `<path d="${path}" fill="none" stroke="${color(r.i)}" stroke-width="2" stroke-linejoin="round" clip-path="url(#${this.clip})"/>${end}`;
  }

  // each shown run's value where the pointer is; a run that ended before says so by its absence
  point(event) {
    if (!this.shown || !this.shown.length) return;
    const frame = this.plot.getBoundingClientRect();
    const px = ((event.clientX - frame.left) / frame.width) * this.width;
    const found = this.shown
      .map((r) => {
        const near = r.xs.map((x) => Math.abs(this.X.at(x) - px));
        const k = near.indexOf(Math.min(...near));
        return { r, k, off: near[k] };
      })
      .filter((f) => f.off < 14 && f.r.ys[f.k] !== null);
    if (!found.length) return this.leave();
    const best = found.reduce((a, b) => (b.off < a.off ? b : a));
    const x = this.X.at(best.r.xs[best.k]);
    const dots = found.map(({ r, k }) =>
      `<circle cx="${this.X.at(r.xs[k])}" cy="${Math.min(this.bottom, this.Y.at(r.ys[k]))}" r="4.5" fill="${color(r.i)}"/>`);
    this.plot.querySelector(".marks").innerHTML =
      `<line class="cross" x1="${x}" x2="${x}" y1="${this.top}" y2="${this.bottom}"/>${dots.join("")}`;
    const lines = found.map(({ r, k }) =>
      `<div><i style="background:${color(r.i)}"></i>${escape(r.name)} <b>${show(r.ys[k])}</b></div>`);
    const unit = this.x === "round" ? `round ${best.r.xs[best.k]}` : `${show(best.r.xs[best.k])} ${UNITS[this.x] || ""}`;
    this.tip.innerHTML = `<div>${escape(unit)}</div>${lines.join("")}`;
    this.tip.hidden = false;
    const at = this.plot.offsetLeft + (x / this.width) * frame.width;
    const flip = at + this.tip.offsetWidth + 18 > this.box.clientWidth;
    this.tip.style.left = `${Math.max(4, flip ? at - this.tip.offsetWidth - 12 : at + 12)}px`;
    this.tip.style.top = `${this.plot.offsetTop + 14}px`;
  }

  leave() {
    this.tip.hidden = true;
    const marks = this.plot.querySelector(".marks");
    if (marks) marks.innerHTML = "";
  }
}

const charts = data.charts.map((spec) => new Chart(spec));
const place = document.getElementById("charts");
place.replaceChildren(...charts.map((c) => c.box));
const legend = document.getElementById("legend");
data.runs.forEach((run, i) => {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  button.innerHTML = `<i style="background:${color(i)}"></i>${escape(run.name)}`;
  button.addEventListener("click", () => {
    if (hidden.has(i)) hidden.delete(i);
    else hidden.add(i);
    button.setAttribute("aria-pressed", String(!hidden.has(i)));
    draw();
  });
  legend.append(button);
});
const draw = () => charts.forEach((c) => c.draw());
draw();
// in the next frame: drawing changes sizes, and an observer must not do so while it is told of them
new ResizeObserver(() => requestAnimationFrame(draw)).observe(place);
