"use strict";
// Curves as SVG, and CSV: what page.js makes the page of. Texts only ever become text nodes or
// attributes.
const charts = (() => {
  const MOST_DRAWN = 2000; // points of one line; the CSV has all
  const SVG = "http://www.w3.org/2000/svg";
  const hidden = new Set(); // runs that the legend has switched off
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
    for (let n = Math.ceil(low / step); n * step <= high + 1e-9 * step; n++)
      ticks.push(Number((n * step).toPrecision(12)));
    return ticks;
  }
  function logTicks(low, high) {
    const decades = Math.log10(high / low);
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
        ? [low / 2, high * 2]
        : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
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

  // ---- A panel of curves. options: id, title, log, factor, xName(), series() -> [{run, name, xs, ys}], rows()
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
    const note = html("p", {});
    const head = html(
      "div",
      { class: "head" },
      html("figcaption", {}, options.title),
      html("span", { class: "tools" }, logButton, csvButton(options.id, options.rows)),
    );
    host.append(html("figure", { class: "panel", "data-panel": options.id }, head, drawing, note));
    let places = []; // every point, drawn or not: {run, index, at, value, x, y}
    let current = null;

    function draw() {
      drawing.replaceChildren();
      places = [];
      current = null;
      note.textContent = "";
      const lines = options.series().filter((line) => !hidden.has(line.run));
      const positive = lines.every((line) => line.ys.every((y) => y > 0));
      const useLog = isLog && positive;
      logButton.disabled = !positive;
      for (const line of lines) {
        line.points = line.xs.map((at, index) => ({
          run: line.run,
          name: line.name,
          index,
          at,
          value: line.ys[index] * options.factor,
        }));
      }
      const all = lines.flatMap((line) => line.points);
      if (!all.length) {
        drawing.append(svg("text", { x: width / 2, y: height / 2 }, "nothing to draw"));
        return;
      }
      const x = scale(
        all.map((p) => p.at),
        false,
        frame.left + 6,
        frame.right,
      );
      const y = scale(
        all.map((p) => p.value),
        useLog,
        frame.bottom,
        frame.top + 4,
      );
      Object.assign(drawing.dataset, { x0: x.low, x1: x.high, y0: y.low, y1: y.high, log: useLog });
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
      drawing.append(svg("path", { class: "grid", d: `M${frame.left} ${frame.bottom}H${frame.right}` }));
      drawing.append(
        svg("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 33 }, options.xName()),
      );
      for (const line of lines) {
        for (const p of line.points) [p.x, p.y] = [x.place(p.at), y.place(p.value)];
        const drawn = thinned(line.points);
        const group = svg("g", { "data-run": line.name });
        group.style.setProperty("--run", colour(line.run));
        const path = drawn.map((p) => `${p.x.toFixed(3)},${p.y.toFixed(3)}`).join(" ");
        group.append(svg("polyline", { class: "curve", points: path, "stroke-dasharray": dash(line.run) }));
        if (drawn.length <= 60)
          for (const p of drawn)
            group.append(
              svg("circle", { class: "dot", cx: p.x, cy: p.y, r: 2.2, "data-x": p.at, "data-y": p.value }),
            );
        drawing.append(group);
        places.push(...line.points);
        if (drawn.length < line.points.length) {
          const [some, every] = [drawn, line.points].map((list) => list.length.toLocaleString("en"));
          note.textContent = `Lines show ${some} of ${every} points; the CSV has all.`;
        }
      }
    }

    function show(point) {
      current = point;
      for (const old of drawing.querySelectorAll(".tip, .pointer")) old.remove();
      if (!point) return;
      const at = options.xName().startsWith("bytes")
        ? bytes(point.at)
        : `${options.xName()} ${short(point.at)}`;
      const texts = [point.name, `${at}: ${Number(point.value.toPrecision(6))}`];
      const longest = Math.min(56, Math.max(...texts.map((text) => text.length)));
      const wide = 12 + 6.3 * longest;
      const left = Math.max(2, Math.min(point.x + 10, width - wide - 2));
      const top = point.y > 70 ? point.y - 48 : point.y + 12;
      const tip = svg(
        "g",
        { class: "tip" },
        svg("rect", { x: left, y: top, width: wide, height: 36, rx: 5 }),
      );
      texts.forEach((text, row) =>
        tip.append(
          svg(
            "text",
            { x: left + 6, y: top + 15 + 15 * row },
            text.length > 56 ? `${text.slice(0, 55)}…` : text,
          ),
        ),
      );
      drawing.append(svg("circle", { class: "pointer", cx: point.x, cy: point.y, r: 4.5 }), tip);
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
      const runs = [...new Set(places.map((p) => p.run))];
      if (!current) show(places[0]);
      else if (step)
        show(places.find((p) => p.run === current.run && p.index === current.index + step) || current);
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

  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const redraw = () => redraws.forEach((draw) => draw());
  return { html, svg, colour, dash, csvButton, panel, short, least, most, hidden, redraw };
})();
