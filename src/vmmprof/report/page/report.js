// SPDX-License-Identifier: MIT
// Draws the page's charts from the data that the page carries; nothing is fetched.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
// As wide as the page on a phone, so that text keeps its size; a wide page magnifies the drawing.
const WIDTH = Math.max(300, Math.min(720, document.body.clientWidth - 32));
const HEIGHT = 360, LEFT = 64, RIGHT = 14, TOP = 14, BOTTOM = 44;
const SHAPES = ["circle", "square", "triangle", "diamond"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
const hover = document.getElementById("hover");

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.appendChild(made);
  return made;
}

function colour(index) { return `var(--s${index % 8})`; }

function write(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function interval(value, lo, hi, unit) {
  const ends = lo === null || lo === undefined ? "no interval" : `[${write(lo)}, ${write(hi)}]`;
  return `${write(value)}${unit} ${ends}`;
}

// -- hover: by pointer, touch and keyboard ------------------------------------

function show(text, x, y) {
  hover.textContent = text;
  hover.hidden = false;
  const box = hover.getBoundingClientRect();
  hover.style.left = `${Math.max(4, Math.min(x + 12, window.innerWidth - box.width - 4))}px`;
  hover.style.top = `${Math.max(4, y - box.height - 10)}px`;
}

function explain(mark, text) {
  mark.setAttribute("tabindex", "0");
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", text);
  mark.classList.add("mark");
  mark.addEventListener("pointerenter", (event) => show(text, event.clientX, event.clientY));
  mark.addEventListener("pointerleave", () => { hover.hidden = true; });
  mark.addEventListener("focus", () => {
    const box = mark.getBoundingClientRect();
    show(text, box.right, box.top);
  });
  mark.addEventListener("blur", () => { hover.hidden = true; });
}

// -- scales and axes ----------------------------------------------------------

function scale(values, log, from, to, fromZero) {
  let low = Math.min(...values), high = Math.max(...values);
  if (log) low = Math.min(...values.filter((v) => v > 0));
  if (!log && fromZero) low = Math.min(0, low);
  if (low === high) { low = log ? low / 2 : low - 1; high = log ? high * 2 : high + 1; }
  const forward = log ? Math.log : (v) => v;
  const a = forward(low), b = forward(high);
  const at = (v) => from + (to - from) * (forward(v) - a) / (b - a);
  return { at, low, high, log, ticks: log ? logTicks(low, high) : linearTicks(low, high) };
}

function linearTicks(low, high) {
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) ticks.push(t);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p += 1)
    for (const m of [1, 2, 5]) {
      const tick = m * 10 ** p;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : [low, high];
}

function tickText(value) { return String(Number(value.toPrecision(4))); }

function frame(host, x, y, xName, yName) {
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot" }, host);
  for (const tick of y.ticks) {
    const at = y.at(tick);
    element("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at, class: "grid" }, svg);
    element("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, svg).textContent = tickText(tick);
  }
  let lastAt = -Infinity;
  for (const tick of x.ticks) {
    const at = x.at(tick);
    element("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM, class: "grid" }, svg);
    if (at - lastAt < 34) continue;
    lastAt = at;
    element("text", { x: at, y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, svg)
      .textContent = tickText(tick);
  }
  element("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, svg)
    .textContent = xName;
  element("text", {
    x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle",
    transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})`,
  }, svg).textContent = yName;
  return svg;
}

function marker(parent, index, x, y) {
  const shape = SHAPES[index % SHAPES.length], fill = colour(index), r = 5;
  if (shape === "circle") return element("circle", { cx: x, cy: y, r, fill }, parent);
  if (shape === "square")
    return element("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, fill }, parent);
  const points = shape === "triangle"
    ? `${x},${y - r} ${x + r},${y + r} ${x - r},${y + r}`
    : `${x},${y - r - 1} ${x + r + 1},${y} ${x},${y + r + 1} ${x - r - 1},${y}`;
  return element("polygon", { points, fill }, parent);
}

function legend(host, names) {
  const box = document.createElement("div");
  box.className = "legend";
  for (const [index, name] of names) {
    const item = document.createElement("span");
    const svg = element("svg", { viewBox: "0 0 32 16" }, item);
    element("line", {
      x1: 0, x2: 32, y1: 8, y2: 8, stroke: colour(index), "stroke-width": 2,
      "stroke-dasharray": DASHES[index % DASHES.length],
    }, svg);
    marker(svg, index, 16, 8);
    item.append(name);
    box.append(item);
  }
  host.append(box);
}

// -- charts -------------------------------------------------------------------

const names = data.placements.map((p) => p.name);

function sizeText(mib) { return mib >= 1024 && mib % 1024 === 0 ? `${mib / 1024} GiB` : `${mib} MiB`; }

// A curve a placement over size, of one estimate: ratio, P50 or extra cost.
function overSize(host, key, unit, yName, logX, logY) {
  const ends = (row) => {
    const [lo, hi] = unit ? [`${key}_lo_us`, `${key}_hi_us`] : [`${key}_lo`, `${key}_hi`];
    return [row[unit ? `${key}_us` : key], row[lo], row[hi]];
  };
  const curves = data.placements.map((p, index) => ({
    index, name: names[index], threshold: p.threshold,
    points: p.sizes.map((row) => [row.size_mib, ...ends(row), row.n])
      .filter(([, value]) => value !== null && !(logY && value <= 0)),
  })).filter((curve) => curve.points.length);
  if (!curves.length) return false;
  const xs = curves.flatMap((c) => c.points.map((p) => p[0]));
  const ys = curves.flatMap((c) => c.points.flatMap((p) => p.slice(1, 4)))
    .filter((v) => v !== null && !(logY && v <= 0));
  const x = scale(xs, logX, LEFT + 10, WIDTH - RIGHT - 10, false);
  const y = scale(ys, logY, HEIGHT - BOTTOM, TOP + 6, true);
  const svg = frame(host, x, y, "allocation size, MiB", yName);
  for (const curve of curves) {
    if (curve.threshold) {
      const from = x.at(curve.threshold.lower_mib), to = x.at(curve.threshold.upper_mib);
      const band = element("rect", {
        x: from, width: Math.max(1, to - from), y: TOP, height: HEIGHT - BOTTOM - TOP,
        fill: colour(curve.index), opacity: 0.12,
      }, svg);
      explain(band, `${curve.name}: threshold between ${curve.threshold.lower_mib} and ` +
        `${curve.threshold.upper_mib} MiB`);
    }
  }
  for (const curve of curves) {
    const at = curve.points.map(([size, value]) => `${x.at(size)},${y.at(value)}`);
    element("polyline", {
      points: at.join(" "), fill: "none", stroke: colour(curve.index), "stroke-width": 1.5,
      "stroke-dasharray": DASHES[curve.index % DASHES.length],
    }, svg);
    for (const [size, value, lo, hi, n] of curve.points) {
      if (lo !== null && !(logY && lo <= 0))
        element("line", {
          x1: x.at(size), x2: x.at(size), y1: y.at(lo), y2: y.at(hi), stroke: colour(curve.index),
        }, svg);
      const text = `${curve.name}, ${sizeText(size)}\n${interval(value, lo, hi, unit)}\nn ${n}`;
      explain(marker(svg, curve.index, x.at(size), y.at(value)), text);
    }
  }
  legend(host, curves.map((c) => [c.index, c.name]));
  return true;
}

// Stacked P50 of each call of one placement, absolute or as shares.
function breakdown(host, which, asShares) {
  const placement = data.placements[which];
  const rows = placement.sizes.filter((row) => data.calls.some((c) => row.calls_p50_us[c] !== null));
  if (!rows.length) return false;
  const total = (row) => data.calls.reduce((sum, c) => sum + (row.calls_p50_us[c] || 0), 0);
  const tallest = asShares ? 100 : Math.max(...rows.map(total));
  const y = scale([0, tallest], false, HEIGHT - BOTTOM, TOP + 6, true);
  const slot = (WIDTH - LEFT - RIGHT) / rows.length;
  const empty = { at: () => 0, ticks: [] };
  const svg = frame(host, empty, y, "allocation size, MiB", asShares ? "% of the sum" : "P50, us");
  rows.forEach((row, place) => {
    let base = 0;
    const x = LEFT + place * slot + slot * 0.1;
    data.calls.forEach((call, index) => {
      const value = row.calls_p50_us[call];
      if (value === null) return;
      const height = asShares ? 100 * value / total(row) : value;
      const top = y.at(base + height);
      const bar = element("rect", {
        x, width: slot * 0.8, y: top, height: Math.max(0, y.at(base) - top), fill: colour(index + 1),
        stroke: "var(--panel)",
      }, svg);
      explain(bar, `${call}, ${sizeText(row.size_mib)}\nP50 ${write(value)} us\nn ${row.n}`);
      base += height;
    });
    if (place % Math.ceil(rows.length * 40 / WIDTH) === 0)
      element("text", {
        x: x + slot * 0.4, y: HEIGHT - BOTTOM + 16, "text-anchor": "middle",
      }, svg).textContent = tickText(row.size_mib);
  });
  legend(host, data.calls.map((call, index) => [index + 1, call]));
  return true;
}

// Share of samples below a time at one size.
function ecdf(host, size, logX) {
  const curves = data.placements.map((p, index) => [index, p.ecdf_us[size], p.sizes])
    .filter(([, values]) => values && values.length);
  if (!curves.length) return false;
  const all = curves.flatMap(([, values]) => values).filter((v) => !logX || v > 0);
  const x = scale(all, logX, LEFT + 10, WIDTH - RIGHT - 10, false);
  const y = scale([0, 1], false, HEIGHT - BOTTOM, TOP + 6, true);
  const svg = frame(host, x, y, "us", "share of samples");
  for (const [index, values, sizes] of curves) {
    const kept = values.filter((v) => !logX || v > 0);
    const points = kept.map((v, i) => [v, kept.length > 1 ? i / (kept.length - 1) : 1]);
    element("polyline", {
      points: points.map(([v, s]) => `${x.at(v)},${y.at(s)}`).join(" "), fill: "none",
      stroke: colour(index), "stroke-width": 1.5, "stroke-dasharray": DASHES[index % DASHES.length],
    }, svg);
    const row = sizes.find((r) => String(r.size_mib) === size);
    const middle = points[Math.floor((points.length - 1) / 2)];
    explain(marker(svg, index, x.at(middle[0]), y.at(middle[1])),
      `${names[index]}, ${sizeText(Number(size))}\nP50 ` +
      `${interval(row.p50_us, row.p50_lo_us, row.p50_hi_us, " us")}\nn ${row.n}`);
  }
  legend(host, curves.map(([index]) => [index, names[index]]));
  return true;
}

// -- page ---------------------------------------------------------------------

function chart(id, controls, draw) {
  const section = document.getElementById(id);
  const host = section.querySelector(".drawing");
  const box = section.querySelector(".controls");
  const state = {};
  const redraw = () => {
    host.replaceChildren();
    if (!draw(host, state)) section.hidden = true;
  };
  for (const [name, label, kind, initial, choices] of controls) {
    state[name] = initial;
    const wrap = document.createElement("label");
    const input = document.createElement(kind === "check" ? "input" : "select");
    if (kind === "check") { input.type = "checkbox"; input.checked = initial; }
    else for (const [value, text] of choices) input.add(new Option(text, value));
    input.name = name;
    input.addEventListener("change", () => {
      state[name] = kind === "check" ? input.checked : input.value;
      redraw();
    });
    if (kind === "check") wrap.append(input, ` ${label}`);
    else wrap.append(`${label} `, input);
    box.append(wrap);
  }
  redraw();
}

const allSizes = [...new Set(data.placements.flatMap((p) => p.sizes.map((r) => r.size_mib)))]
  .sort((a, b) => a - b);
const wide = allSizes.length > 1 && allSizes[allSizes.length - 1] / allSizes[0] > 8;
const logs = [["logX", "logarithmic size", "check", wide], ["logY", "logarithmic cost", "check", false]];
const placements = names.map((name, index) => [String(index), name]);

chart("ratio", logs, (host, s) => overSize(host, "ratio", "", "time over plain", s.logX, s.logY));
chart("extra", logs, (host, s) => overSize(host, "extra", " us", "extra over plain, us", s.logX, s.logY));
chart("p50", [logs[0], ["logY", "logarithmic cost", "check", wide]],
  (host, s) => overSize(host, "p50", " us", "P50, us", s.logX, s.logY));
chart("breakdown", [
  ["which", "placement", "select", "0", placements],
  ["shares", "as shares", "check", wide],
], (host, s) => breakdown(host, Number(s.which), s.shares));
chart("ecdf", [
  ["size", "size", "select", String(allSizes[0]), allSizes.map((s) => [String(s), sizeText(s)])],
  ["logX", "logarithmic time", "check", false],
], (host, s) => ecdf(host, s.size, s.logX));

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function csv() {
  const columns = Object.keys(data.placements[0].sizes[0])
    .filter((key) => !["calls_p50_us", "other_attempts"].includes(key));
  const head = ["placement", ...columns, ...data.calls.map((c) => `${c}_p50_us`)];
  const quoted = (v) => (v === null ? "" : `"${String(v).replaceAll('"', '""')}"`);
  const rows = data.placements.flatMap((p) => p.sizes.map((row) => [
    p.name, ...columns.map((c) => row[c]), ...data.calls.map((c) => row.calls_p50_us[c]),
  ]));
  return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

document.getElementById("save-json").addEventListener("click",
  () => download(`${data.name}.json`, "application/json", JSON.stringify(data, null, 2)));
document.getElementById("save-csv").addEventListener("click",
  () => download(`${data.name}.csv`, "text/csv", csv()));
