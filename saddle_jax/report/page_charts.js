"use strict";
// Curves as SVG, and CSV: what page.js makes the page of. Texts only ever become text nodes or
// attributes.
const charts = (() => {
  const MOST_DRAWN = 2000; // points of one line; the CSV has all
  const MOST_TOLD = 10; // lines beside the one under the pointer
  const NEAR = 8; // how far beside the pointer, in the drawing's units, another line's point may be
  const SVG = "http://www.w3.org/2000/svg";
  const hidden = new Set(); // groups of runs that the legend has switched off
  const redraws = [];

  function make(space, tag, attributes, ...children) {
    const element = space ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) element.append(child); // strings become text nodes
    return element;
  }
  const html = (tag, attributes, ...children) => make(false, tag, attributes, ...children);
  const svg = (tag, attributes, ...children) => make(true, tag, attributes, ...children);
  // A look is a hue and a shade: what belongs together has one hue. More than ten hues repeat, dashed.
  const SHADES = [100, 58, 78, 40]; // how much of the hue there is, in percent
  const colour = ({ hue, shade }) =>
    shade ? `color-mix(in oklab, var(--run-${hue % 10}) ${SHADES[shade % 4]}%, var(--card))` : `var(--run-${hue % 10})`;
  const dash = ({ hue, shade }) => ["none", "6 3", "2 3", "8 3 2 3"][(shade + Math.floor(hue / 10)) % 4];

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
    const first = Math.ceil(low / step);
    for (let n = 0; n < 12 && (first + n) * step <= high + 1e-9 * step; n++) // n++ leaves 1e17 as it is
      ticks.push(Number(((first + n) * step).toPrecision(12)));
    return [...new Set(ticks)];
  }
  function logTicks(low, high) {
    const decades = Math.log10(high) - Math.log10(low);
    const every = Math.max(1, Math.ceil(decades / 7));
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += every) {
      for (const factor of decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 1.5, 2, 3, 5, 7])
        ticks.push(factor * 10 ** power);
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
    if (low === high)
      [low, high] = isLog
        ? [low / 2 || low, high * 2] // half of the smallest number is 0
        : [low - (Math.abs(low) / 2 || 0.5), high + (Math.abs(high) / 2 || 0.5)];
    const map = isLog ? Math.log : (value) => value;
    const place = (value) => from + ((map(value) - map(low)) / (map(high) - map(low))) * (to - from);
    return { low, high, place, ticks: isLog ? logTicks(low, high) : linearTicks(low, high) };
  }

  // A line of many points keeps the lowest and the highest of each stretch, so that no spike is lost.
  function downsampled(points) {
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

  // Around a mean there is a band, `half` to both sides. On a logarithmic axis it is as wide in the
  // logarithm, to first order: mean * exp(+-half / mean). That never falls below zero.
  function bandOf(line, isLog) {
    return line.halves.map((half, i) => {
      const mean = line.ys[i];
      if (!isLog) return [mean - half, mean + half];
      return [mean * Math.exp(-half / mean), mean * Math.exp(half / mean)];
    });
  }
  // Lines decide the scale; a band may widen it by once their range, or by a factor of ten, and is cut there.
  function limits(lines, isLog, isShare) {
    const values = lines.flatMap((line) => line.points.map((p) => p.value));
    const [low, high] = [least(values), most(values)];
    const room = high - low || Math.abs(high) || 1;
    const [floor, roof] = isLog ? [low / 10 || low, high * 10] : [low - room, high + room];
    return isShare ? { floor: Math.max(0, floor), roof: Math.min(100, roof) } : { floor, roof };
  }

  // ---- A panel of curves. options: id, title, log, factor, xName(), rows(), note(), and
  // series() -> [{group, name, look, xs, ys, halves}], where halves, or null, are those of a band
  function panel(host, options) {
    let isLog = options.log;
    const width = 420;
    const height = 250;
    const frame = { left: 52, right: 408, top: 10, bottom: 212 };
    const drawing = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      tabindex: "0",
      "aria-label": `${options.title}; arrow keys go from point to point`,
    });
    const logButton = html(
      "button",
      {
        type: "button",
        class: "log",
        "aria-pressed": String(isLog),
        "aria-label": `${options.title}: logarithmic scale`,
      },
      "log",
    );
    const note = html("p", { class: "small" });
    const head = html(
      "div",
      { class: "head" },
      html("figcaption", {}, options.title),
      html("span", { class: "tools" }, logButton, csvButton(options.id, options.rows)),
    );
    const figure = html("figure", { class: "panel", "data-panel": options.id }, head, drawing, note);
    host.append(figure);
    let places = []; // every point, drawn or not: {line, index, at, value, half, x, y}
    let current = null;

    function draw() {
      drawing.replaceChildren();
      places = [];
      current = null;
      note.textContent = "";
      const every = options.series();
      figure.classList.toggle("empty", !every.length);
      const lines = every.filter((line) => !hidden.has(line.group));
      const positive = lines.every((line) => line.ys.every((y) => y > 0));
      const useLog = isLog && positive;
      logButton.disabled = !positive;
      lines.forEach((line, number) => {
        line.ys = line.ys.map((y) => y * options.factor);
        line.halves = line.halves ? line.halves.map((half) => half * options.factor) : null;
        line.points = line.xs
          .map((at, index) => ({ line: number, name: line.name, look: line.look, index, at, value: line.ys[index] }))
          .filter((p) => Number.isFinite(p.at) && Number.isFinite(p.value));
        if (line.halves) for (const p of line.points) p.half = line.halves[p.index];
      });
      const all = lines.flatMap((line) => line.points);
      if (!all.length) {
        drawing.append(svg("text", { x: width / 2, y: height / 2 }, "nothing to draw"));
        return;
      }
      const { floor, roof } = limits(lines, useLog, options.factor === 100);
      const cut = (value) => Math.max(floor, Math.min(roof, value));
      for (const line of lines)
        if (line.halves) line.band = bandOf(line, useLog).map((ends) => ends.map(cut));
      const heights = all.map((p) => p.value);
      for (const line of lines) if (line.band) for (const ends of line.band) heights.push(ends[0], ends[1]);
      const x = scale(
        all.map((p) => p.at),
        false,
        frame.left + 6,
        frame.right,
      );
      const y = scale(heights, useLog, frame.bottom, frame.top + 4);
      Object.assign(drawing.dataset, { x0: x.low, x1: x.high, y0: y.low, y1: y.high, log: useLog });
      drawAxes(x, y);
      for (const line of lines) {
        for (const p of line.points) [p.x, p.y] = [x.place(p.at), y.place(p.value)];
        drawLine(line, x, y);
        for (const p of line.points) places.push(p); // not push(...points): they may be 100,000
      }
      note.textContent = [note.textContent, options.note ? options.note() : ""].filter(Boolean).join(" ");
    }

    function drawAxes(x, y) {
      const isBytes = options.xName().startsWith("bytes");
      for (const tick of y.ticks) {
        drawing.append(svg("path", { class: "grid", d: `M${frame.left} ${y.place(tick)}H${frame.right}` }));
        drawing.append(
          svg("text", { class: "end", x: frame.left - 6, y: y.place(tick), dy: 4 }, short(tick)),
        );
      }
      for (const tick of x.ticks)
        drawing.append(
          svg("text", { x: x.place(tick), y: frame.bottom + 16 }, isBytes ? bytes(tick) : short(tick)),
        );
      drawing.append(svg("path", { class: "axis", d: `M${frame.left} ${frame.bottom}H${frame.right}` }));
      drawing.append(
        svg("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 33 }, options.xName()),
      );
    }

    function drawLine(line, x, y) {
      const group = svg("g", { "data-run": line.name });
      group.style.setProperty("--run", colour(line.look));
      const drawn = downsampled(line.points);
      if (line.band) {
        const edge = (side) => drawn.map((p) => `${p.x.toFixed(2)},${y.place(line.band[p.index][side]).toFixed(2)}`);
        group.append(svg("polygon", { class: "band", points: [...edge(1), ...edge(0).reverse()].join(" ") }));
      }
      const path = drawn.map((p) => `${p.x.toFixed(3)},${p.y.toFixed(3)}`).join(" ");
      group.append(svg("polyline", { class: "curve", points: path, "stroke-dasharray": dash(line.look) }));
      if (drawn.length <= 60)
        for (const p of drawn)
          group.append(
            svg("circle", { class: "dot", cx: p.x, cy: p.y, r: 2.2, "data-x": p.at, "data-y": p.value }),
          );
      drawing.append(group);
      if (drawn.length < line.points.length) {
        const [some, every] = [drawn, line.points].map((list) => list.length.toLocaleString("en"));
        note.textContent = `Lines show ${some} of ${every} points; the CSV has all.`;
      }
    }

    // What the other lines are where the pointer is, from top to bottom.
    function beside(point) {
      const found = new Map();
      for (const p of places) {
        const [far, before] = [Math.abs(p.x - point.x), found.get(p.line)];
        if (p.line !== point.line && far <= NEAR && !(before && Math.abs(before.x - point.x) <= far))
          found.set(p.line, p);
      }
      return [...found.values()].sort((a, b) => a.y - b.y);
    }
    const said = (p) =>
      `${Number(p.value.toPrecision(6))}${p.half ? ` \u00b1 ${Number(p.half.toPrecision(3))}` : ""}`;

    function show(point) {
      current = point;
      for (const old of drawing.querySelectorAll(".tip, .pointer, .rule")) old.remove();
      if (!point) return;
      const at = options.xName().startsWith("bytes")
        ? bytes(point.at)
        : `${options.xName()} ${short(point.at)}`;
      const others = beside(point);
      const rows = [
        { text: point.name },
        { text: `${at}: ${said(point)}`, look: point.look },
        ...others.slice(0, MOST_TOLD).map((p) => ({ text: `${said(p)}  ${p.name}`, look: p.look })),
      ];
      if (others.length > MOST_TOLD) rows.push({ text: `and ${others.length - MOST_TOLD} more` });
      const texts = rows.map(({ text }) => (text.length > 56 ? `${text.slice(0, 55)}…` : text));
      const [wide, high] = [20 + 6.3 * Math.max(...texts.map((text) => text.length)), 6 + 15 * rows.length];
      const left = point.x + 10 + wide < width ? point.x + 10 : Math.max(2, point.x - 10 - wide);
      const top = Math.max(2, Math.min(point.y > 70 ? point.y - 12 - high : point.y + 12, height - high - 2));
      const tip = svg("g", { class: "tip" }, svg("rect", { x: left, y: top, width: wide, height: high, rx: 5 }));
      rows.forEach(({ look }, row) => {
        const y = top + 15 + 15 * row;
        if (look) tip.append(svg("circle", { cx: left + 8, cy: y - 4, r: 3.5, fill: colour(look) }));
        tip.append(svg("text", { x: left + 15, y }, texts[row]));
      });
      drawing.append(
        svg("path", { class: "rule", d: `M${point.x} ${frame.top}V${frame.bottom}` }),
        ...others.map((p) => svg("circle", { class: "pointer", cx: p.x, cy: p.y, r: 2.5 })),
        svg("circle", { class: "pointer", cx: point.x, cy: point.y, r: 4.5 }),
        tip,
      );
      document.getElementById("said").textContent = texts.join(", ");
    }
    const nearest = (distance) => places.reduce((best, p) => (distance(p) < distance(best) ? p : best));
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect();
      const [x, y] = [
        ((event.clientX - box.left) * width) / box.width,
        ((event.clientY - box.top) * height) / box.height,
      ];
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
      const lines = [...new Set(places.map((p) => p.line))];
      if (!current) show(places[0]);
      else if (step)
        show(places.find((p) => p.line === current.line && p.index === current.index + step) || current);
      else {
        const line = lines[(lines.indexOf(current.line) + turn + lines.length) % lines.length];
        show(nearest((p) => (p.line === line ? Math.abs(p.at - current.at) : Infinity)));
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

  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const redraw = () => redraws.forEach((draw) => draw());
  return { html, svg, colour, dash, csvButton, panel, short, least, most, hidden, redraw, redraws };
})();
