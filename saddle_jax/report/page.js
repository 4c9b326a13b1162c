"use strict";
// Draws the curves and heat maps of a page and writes CSV. Texts only ever become textContent or attributes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const MOST_DRAWN = 2000; // points of one line; the CSV has all
  const MOST_CELLS = 120; // of a heat map, along one side
  const SVG = "http://www.w3.org/2000/svg";
  const X = {
    epoch: "epoch",
    step: "step",
    bytes_sent_per_agent: "bytes sent per agent",
    paper_bytes_sent_per_agent: "bytes sent per agent, as the paper counts",
  };
  const state = { x: "epoch", hidden: new Set() };
  const redraws = [];

  function make(space, tag, attributes, ...children) {
    const element = space ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) element.append(child); // strings become text nodes
    return element;
  }
  const html = (tag, attributes, ...children) => make(false, tag, attributes, ...children);
  const svg = (tag, attributes, ...children) => make(true, tag, attributes, ...children);
  const colour = (run) => `var(--run-${run % 10})`;
  const dash = (run) => ["none", "6 3", "2 3", "8 3 2 3"][Math.floor(run / 10) % 4];

  function short(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  }
  function bytes(value) {
    const power = value > 0 ? Math.min(4, Math.max(0, Math.floor(Math.log10(value) / 3))) : 0;
    return `${Number((value / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
  }

  // ---- CSV
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    let text = String(value);
    // A spreadsheet would take such a text for a formula.
    if (/^[=+\-@\t\r]/.test(text) && !/^-?[\d.]+(e[+-]?\d+)?$/i.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map(cell).join(",") + "\n").join("");
  function csvButton(name, rows) {
    const button = html("button", { type: "button", class: "csv", "data-csv-of": name }, "CSV");
    button.setAttribute("aria-label", `${name} as CSV`);
    button.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([csv(rows())], { type: "text/csv" }));
      html("a", { href: url, download: `${name}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
    return button;
  }

  // ---- Axes
  function linearTicks(low, high) {
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const ticks = [];
    for (let n = Math.ceil(low / step); n * step <= high + 1e-9 * step; n++) ticks.push(Number((n * step).toPrecision(12)));
    return ticks;
  }
  function logTicks(low, high) {
    const decades = Math.log10(high / low);
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const factor of decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 1.5, 2, 3, 5, 7]) ticks.push(factor * 10 ** power);
    }
    return ticks.filter((tick) => tick >= low && tick <= high);
  }
  function scale(values, isLog, from, to) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const map = isLog ? Math.log : (value) => value;
    const place = (value) => from + ((map(value) - map(low)) / (map(high) - map(low))) * (to - from);
    return { low, high, place, ticks: isLog ? logTicks(low, high) : linearTicks(low, high) };
  }

  // A line of many points keeps the lowest and the highest of each stretch, so that no spike is lost.
  function thinned(points) {
    if (points.length <= MOST_DRAWN) return points;
    const stretch = Math.ceil((2 * points.length) / MOST_DRAWN);
    const kept = [];
    for (let start = 0; start < points.length; start += stretch) {
      const part = points.slice(start, start + stretch);
      const low = part.reduce((a, b) => (b.value < a.value ? b : a));
      const high = part.reduce((a, b) => (b.value > a.value ? b : a));
      kept.push(...(low === high ? [low] : [low, high].sort((a, b) => a.index - b.index)));
    }
    return kept;
  }

  // ---- A panel of curves. options: id, title, log, factor, xName(), series() -> [{run, xs, ys}], rows()
  function panel(host, options) {
    let isLog = options.log;
    const width = 420;
    const height = 250;
    const frame = { left: 52, right: 408, top: 10, bottom: 212 };
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": `${options.title}; arrow keys go from point to point` });
    const logButton = html("button", { type: "button", class: "log", "aria-pressed": String(isLog), "aria-label": `${options.title}: logarithmic scale` }, "log");
    const note = html("p", {});
    const head = html("div", { class: "head" }, html("figcaption", {}, options.title), html("span", { class: "tools" }, logButton, csvButton(options.id, options.rows)));
    host.append(html("figure", { class: "panel", "data-panel": options.id }, head, drawing, note));
    let places = []; // every point, drawn or not: {run, index, at, value, x, y}
    let current = null;

    function draw() {
      drawing.replaceChildren();
      places = [];
      current = null;
      note.textContent = "";
      const lines = options.series().filter((line) => !state.hidden.has(line.run));
      const positive = lines.every((line) => line.ys.every((y) => y > 0));
      const useLog = isLog && positive;
      logButton.disabled = !positive;
      for (const line of lines) {
        line.points = line.xs.map((at, index) => ({ run: line.run, index, at, value: line.ys[index] * options.factor }));
      }
      const all = lines.flatMap((line) => line.points);
      if (!all.length) {
        drawing.append(svg("text", { x: width / 2, y: height / 2 }, "nothing to draw"));
        return;
      }
      const x = scale(all.map((p) => p.at), false, frame.left + 6, frame.right);
      const y = scale(all.map((p) => p.value), useLog, frame.bottom, frame.top + 4);
      Object.assign(drawing.dataset, { x0: x.low, x1: x.high, y0: y.low, y1: y.high, log: useLog });
      const isBytes = options.xName().startsWith("bytes");
      for (const tick of y.ticks) {
        drawing.append(svg("path", { class: "grid", d: `M${frame.left} ${y.place(tick)}H${frame.right}` }));
        drawing.append(svg("text", { class: "end", x: frame.left - 6, y: y.place(tick), dy: 4 }, short(tick)));
      }
      for (const tick of x.ticks) drawing.append(svg("text", { x: x.place(tick), y: frame.bottom + 16 }, isBytes ? bytes(tick) : short(tick)));
      drawing.append(svg("path", { class: "grid", d: `M${frame.left} ${frame.bottom}H${frame.right}` }));
      drawing.append(svg("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 33 }, options.xName()));
      for (const line of lines) {
        for (const p of line.points) [p.x, p.y] = [x.place(p.at), y.place(p.value)];
        const drawn = thinned(line.points);
        const group = svg("g", { "data-run": data.runs[line.run].name });
        group.style.setProperty("--run", colour(line.run));
        const path = drawn.map((p) => `${p.x.toFixed(3)},${p.y.toFixed(3)}`).join(" ");
        group.append(svg("polyline", { class: "curve", points: path, "stroke-dasharray": dash(line.run) }));
        if (drawn.length <= 60) for (const p of drawn) group.append(svg("circle", { class: "dot", cx: p.x, cy: p.y, r: 2.2, "data-x": p.at, "data-y": p.value }));
        drawing.append(group);
        places.push(...line.points);
        if (drawn.length < line.points.length) note.textContent = `Lines show ${drawn.length.toLocaleString("en")} of ${line.points.length.toLocaleString("en")} points; the CSV has all.`;
      }
    }

    function show(point) {
      current = point;
      for (const old of drawing.querySelectorAll(".tip, .pointer")) old.remove();
      if (!point) return;
      const at = options.xName().startsWith("bytes") ? bytes(point.at) : `${options.xName()} ${short(point.at)}`;
      const texts = [data.runs[point.run].name, `${at}: ${Number(point.value.toPrecision(6))}`];
      const longest = Math.min(56, Math.max(...texts.map((text) => text.length)));
      const wide = 12 + 6.3 * longest;
      const left = Math.max(2, Math.min(point.x + 10, width - wide - 2));
      const top = point.y > 70 ? point.y - 48 : point.y + 12;
      const tip = svg("g", { class: "tip" }, svg("rect", { x: left, y: top, width: wide, height: 36, rx: 5 }));
      texts.forEach((text, row) => tip.append(svg("text", { x: left + 6, y: top + 15 + 15 * row }, text.length > 56 ? `${text.slice(0, 55)}…` : text)));
      drawing.append(svg("circle", { class: "pointer", cx: point.x, cy: point.y, r: 4.5 }), tip);
      document.getElementById("said").textContent = texts.join(", ");
    }
    const nearest = (distance) => places.reduce((best, p) => (distance(p) < distance(best) ? p : best));
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const [x, y] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * height) / box.height];
      if (places.length) show(nearest((p) => (p.x - x) ** 2 + (p.y - y) ** 2));
    });
    drawing.addEventListener("pointerleave", () => show(null));
    drawing.addEventListener("blur", () => show(null));
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") show(null);
      if (!places.length || (!step && !turn)) return;
      event.preventDefault();
      const runs = [...new Set(places.map((p) => p.run))];
      if (!current) show(places[0]);
      else if (step) show(places.find((p) => p.run === current.run && p.index === current.index + step) || current);
      else {
        const run = runs[(runs.indexOf(current.run) + turn + runs.length) % runs.length];
        show(nearest((p) => (p.run === run ? Math.abs(p.at - current.at) : Infinity)));
      }
    });
    logButton.addEventListener("click", () => {
      isLog = !isLog;
      logButton.setAttribute("aria-pressed", String(isLog));
      draw();
    });
    redraws.push(draw);
    draw();
  }

  // ---- A heat map. options: id, title, xs, ys, z (a row per y), xName, yName, low, high, log, contours, rows()
  const STOPS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];
  function shade(part) {
    const at = Math.max(0, Math.min(1, part)) * (STOPS.length - 1);
    const [below, rest] = [Math.min(STOPS.length - 2, Math.floor(at)), at - Math.min(STOPS.length - 2, Math.floor(at))];
    return `rgb(${STOPS[below].map((c, k) => Math.round(c + rest * (STOPS[below + 1][k] - c))).join(",")})`;
  }
  function heat(host, options) {
    const everyX = Math.ceil(options.xs.length / MOST_CELLS);
    const everyY = Math.ceil(options.ys.length / MOST_CELLS);
    const columns = options.xs.map((_, i) => i).filter((i) => i % everyX === 0);
    const lines = options.ys.map((_, i) => i).filter((i) => i % everyY === 0);
    const named = typeof options.ys[0] !== "number";
    const [left, top, side] = named ? [132, 8, 220] : [52, 8, 300];
    const [w, h] = [side / columns.length, (options.tall || side) / lines.length];
    const bottom = top + h * lines.length;
    const map = options.log ? (value) => Math.log(value) : (value) => value;
    const part = (value) => (map(value) - map(options.low)) / (map(options.high) - map(options.low) || 1);
    const drawing = svg("svg", { viewBox: `0 0 420 ${bottom + 40}`, role: "img", "aria-label": options.title });
    lines.forEach((line, row) => columns.forEach((column, at) => {
      const value = options.z[line][column];
      if (value === null || value === undefined || (options.log && value <= 0)) return;
      const box = { x: left + w * at, y: bottom - h * (row + 1), width: w + 0.3, height: h + 0.3, fill: shade(part(value)), "shape-rendering": "crispEdges" };
      const said = `${options.xName} ${short(options.xs[column])}, ${options.yName} ${named ? options.ys[line] : short(options.ys[line])}: ${Number(value.toPrecision(6))}`;
      drawing.append(svg("rect", box, svg("title", {}, said)));
    }));
    if (options.contours) {
      for (let level = 1; level < 12; level++) drawing.append(svg("path", { class: "contour", d: contour(level / 12) }));
    }
    function contour(level) { // marching squares between the cells' middles
      let path = "";
      for (let r = 0; r + 1 < lines.length; r++) for (let c = 0; c + 1 < columns.length; c++) {
        const corners = [[c, r], [c + 1, r], [c + 1, r + 1], [c, r + 1]];
        const values = corners.map(([i, j]) => part(options.z[lines[j]][columns[i]] ?? NaN));
        const cuts = [];
        for (let k = 0; k < 4; k++) {
          const [a, b] = [values[k], values[(k + 1) % 4]];
          if ((a < level) !== (b < level) && Number.isFinite(a) && Number.isFinite(b)) {
            const t = (level - a) / (b - a);
            const [p, q] = [corners[k], corners[(k + 1) % 4]];
            cuts.push([left + w * (p[0] + t * (q[0] - p[0]) + 0.5), bottom - h * (p[1] + t * (q[1] - p[1]) + 0.5)]);
          }
        }
        for (let k = 0; k + 1 < cuts.length; k += 2) path += `M${cuts[k].map((v) => v.toFixed(1))}L${cuts[k + 1].map((v) => v.toFixed(1))}`;
      }
      return path;
    }
    for (let k = 0; k < 60; k++) drawing.append(svg("rect", { x: 366, y: top + (60 - k - 1) * ((bottom - top) / 60), width: 12, height: (bottom - top) / 60 + 0.3, fill: shade(k / 59) }));
    drawing.append(svg("text", { class: "start", x: 382, y: top + 8 }, short(options.high)), svg("text", { class: "start", x: 382, y: bottom }, short(options.low)));
    const [x0, x1] = [options.xs[0], options.xs[options.xs.length - 1]].map(short);
    drawing.append(svg("text", { x: left, y: bottom + 16 }, x0), svg("text", { x: left + side, y: bottom + 16 }, x1), svg("text", { x: left + side / 2, y: bottom + 30 }, options.xName));
    const shown = named ? lines.filter((_, row) => row % Math.ceil(10 / h) === 0) : [lines[0], lines[lines.length - 1]];
    for (const line of shown) {
      const text = named ? options.ys[line].slice(-20) : short(options.ys[line]); // a layer's name ends in what it is
      drawing.append(svg("text", { class: "end", x: left - 6, y: bottom - h * (lines.indexOf(line) + 0.5), dy: 4 }, text));
    }
    const caption = html("figcaption", {}, options.title);
    const figure = html("figure", { class: "panel", "data-panel": options.id }, html("div", { class: "head" }, caption, html("span", { class: "tools" }, csvButton(options.id, options.rows))), drawing);
    if (everyX > 1 || everyY > 1) figure.append(html("p", {}, `One of ${everyX * everyY} cells is drawn; the CSV has all.`));
    host.append(figure);
  }
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

  // ---- Controls and legend
  const runsWith = (key) => data.runs.some((run) => run.columns[key]);
  const chooser = html("select", { id: "x-axis" });
  for (const [key, name] of Object.entries(X)) if (runsWith(key)) chooser.append(html("option", { value: key }, name));
  chooser.addEventListener("change", () => {
    state.x = chooser.value;
    for (const redraw of redraws) redraw();
  });
  const legend = html("div", { class: "legend", role: "group", "aria-label": "Runs: press to hide or show" });
  data.runs.forEach((run, number) => {
    const mark = svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("path", { class: "curve", d: "M0 4H24", "stroke-dasharray": dash(number) }));
    mark.style.setProperty("--run", colour(number));
    const button = html("button", { type: "button", "aria-pressed": "true" }, mark, run.name);
    button.addEventListener("click", () => {
      if (!state.hidden.delete(number)) state.hidden.add(number);
      button.setAttribute("aria-pressed", String(!state.hidden.has(number)));
      for (const redraw of redraws) redraw();
    });
    legend.append(button);
  });
  function everything() { // all lines of all runs, lists spread over columns named after the layers
    const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.columns)))];
    const widths = names.map((name) => most(data.runs.flatMap((run) => (run.columns[name] || []).map((v) => (Array.isArray(v) ? v.length : 0)))));
    const label = (name, k) => `${name}[${name.endsWith("_by_layer") ? (data.runs[0].layers[k] ?? k) : k}]`;
    const rows = [["run", ...names.flatMap((name, n) => (widths[n] > 0 ? Array.from({ length: widths[n] }, (_, k) => label(name, k)) : [name]))]];
    for (const run of data.runs) {
      for (let line = 0; line < (run.columns.step || []).length; line++) {
        rows.push([run.name, ...names.flatMap((name, n) => {
          const value = run.columns[name] ? run.columns[name][line] : null;
          return widths[n] > 0 ? Array.from({ length: widths[n] }, (_, k) => (value ? value[k] : null)) : [value];
        })]);
      }
    }
    return rows;
  }
  document.getElementById("controls").append(html("label", { for: "x-axis" }, "against "), chooser, legend, html("span", {}, "all metrics ", csvButton("metrics", everything)));

  // ---- Curves of the metrics
  for (const { key, title, log, factor } of data.panels) {
    panel(document.getElementById("panels"), {
      id: key, title, log, factor,
      xName: () => X[state.x],
      series: () => data.runs.flatMap((run, number) => {
        const [xs, ys] = [run.columns[state.x], run.columns[key]];
        if (!xs || !ys) return [];
        const has = ys.map((_, i) => i).filter((i) => ys[i] !== null && xs[i] !== null);
        return has.length ? [{ run: number, xs: has.map((i) => xs[i]), ys: has.map((i) => ys[i]) }] : [];
      }),
      rows: () => {
        const axes = Object.keys(X).filter(runsWith);
        const lines = data.runs.flatMap((run) => (run.columns[key] || []).flatMap((value, i) => (value === null ? [] : [[run.name, ...axes.map((axis) => (run.columns[axis] || [])[i]), value]])));
        return [["run", ...axes, key], ...lines];
      },
    });
  }

  // ---- Sharpness
  const measured = data.runs.map((run, number) => ({ number, name: run.name, stages: (run.sharpness || { stages: [] }).stages })).filter((run) => run.stages.length);
  for (const [key, title] of [["lambda_max", "Largest eigenvalue of the Hessian, consensus model"], ["trace", "Trace of the Hessian, consensus model"]]) {
    const of = (run) => run.stages.filter((stage) => stage.whose === "consensus" && stage[key] !== null && stage.epoch !== null);
    if (!measured.some((run) => of(run).length)) continue;
    panel(document.getElementById("sharpness-panels"), {
      id: key, title, log: false, factor: 1, xName: () => "epoch",
      series: () => measured.filter((run) => of(run).length).map((run) => ({ run: run.number, xs: of(run).map((s) => s.epoch), ys: of(run).map((s) => s[key]) })),
      rows: () => [["run", "step", "epoch", key], ...measured.flatMap((run) => of(run).map((s) => [run.name, s.step, s.epoch, s[key]]))],
    });
  }
  const dense = measured.map((run) => ({ ...run, density: (run.stages.filter((s) => s.whose === "consensus" && s.density).pop() || {}).density })).filter((run) => run.density);
  if (dense.length) {
    panel(document.getElementById("sharpness-panels"), {
      id: "spectrum", title: "Density of the Hessian's eigenvalues at the last stage", log: true, factor: 1, xName: () => "eigenvalue",
      series: () => dense.map((run) => ({ run: run.number, xs: run.density.x, ys: run.density.y })),
      rows: () => [["run", "eigenvalue", "density"], ...dense.flatMap((run) => run.density.x.map((x, i) => [run.name, x, run.density.y[i]]))],
    });
  }

  // ---- Landscapes, on one scale of colours
  const plains = data.runs.filter((run) => run.landscape);
  if (plains.length) {
    const host = document.getElementById("landscapes");
    host.replaceChildren();
    const losses = plains.flatMap((run) => run.landscape.loss.flat()).filter((value) => value !== null);
    const log = least(losses) > 0;
    for (const run of plains) {
      const { x, y, loss } = run.landscape;
      heat(host, {
        id: `landscape of ${run.name}`, title: `${run.name}: loss${log ? ", logarithmic colours" : ""}`, xs: x, ys: y, z: loss, xName: "x", yName: "y",
        low: least(losses), high: most(losses), log, contours: true,
        rows: () => [["x", "y", "loss"], ...y.flatMap((b, r) => x.map((a, c) => [a, b, loss[r][c]]))],
      });
    }
  }

  // ---- Measured contraction
  const contracted = data.runs.flatMap((run) => ["zeta_by_layer", "gradient_zeta_by_layer"].filter((key) => run.columns[key]).map((key) => ({ run, key })));
  if (contracted.length) {
    const host = document.getElementById("contractions");
    host.replaceChildren();
    for (const { run, key } of contracted) {
      const lines = run.columns[key].map((_, i) => i).filter((i) => run.columns[key][i]);
      const epochs = lines.map((i) => run.columns.epoch[i]);
      const count = most(lines.map((i) => run.columns[key][i].length));
      const layers = Array.from({ length: count }, (_, k) => run.layers[k] ?? String(k));
      const z = layers.map((_, k) => lines.map((i) => run.columns[key][i][k] ?? null));
      const values = z.flat().filter((value) => value !== null);
      heat(host, {
        id: `${key} of ${run.name}`, title: `${run.name}: \u03b6 of ${key === "zeta_by_layer" ? "models" : "gradients"}`, xs: epochs, ys: layers, z,
        xName: "epoch", yName: "layer", low: Math.min(0, least(values)), high: 1, log: false, contours: false, tall: Math.min(300, 22 * count),
        rows: () => [["run", "epoch", "layer", "zeta"], ...layers.flatMap((layer, k) => epochs.map((epoch, i) => [run.name, epoch, layer, z[k][i]]))],
      });
    }
  }

  // ---- CSV of what stands in the page already
  for (const element of document.querySelectorAll("table[data-csv]")) {
    const rows = () => [...element.rows].map((row) => [...row.cells].map((one) => one.dataset.value ?? one.textContent));
    element.parentElement.after(csvButton(element.dataset.csv, rows));
  }
  for (const figure of document.querySelectorAll("figure[data-edges]")) {
    const { edges } = data.runs[Number(figure.dataset.edges)];
    figure.querySelector("figcaption").append(" ", csvButton("edges", () => [["from", "to", "weight"], ...edges.map(([i, j, w]) => [j, i, w])]));
  }
  for (const figure of document.querySelectorAll("figure[data-partition]")) {
    const run = data.runs[Number(figure.dataset.partition)];
    if (run.class_counts) figure.querySelector("figcaption").append(" ", csvButton("class counts", () => [["agent", ...run.class_names], ...run.class_counts.map((row, agent) => [agent, ...row])]));
  }
  const told = data.runs.filter((run) => Array.isArray(run.agent_accuracies));
  if (told.length) document.querySelector("#agents p").append(" ", csvButton("agents", () => [["run", "agent", "test_accuracy"], ...told.flatMap((run) => run.agent_accuracies.map((value, agent) => [run.name, agent, value]))]));
  window.addEventListener("beforeprint", () => {
    for (const element of document.querySelectorAll("details")) element.open = true;
  });
})();
