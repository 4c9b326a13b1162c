// Heat maps with contours: loss landscapes, contraction by layer, agents over time.
const heat = (() => {
  const { html, svg, short, csvButton } = charts;
  const MOST_CELLS = 120; // along one side

  // ---- A heat map. options: id, title, xs, ys, z (a row per y), xName, yName, low, high, log, contours, rows()
  const STOPS = [
    [68, 1, 84],
    [65, 68, 135],
    [42, 120, 142],
    [34, 168, 132],
    [122, 209, 81],
    [253, 231, 37],
  ];
  function shade(part) {
    const at = Math.max(0, Math.min(1, part)) * (STOPS.length - 1);
    const [below, rest] = [
      Math.min(STOPS.length - 2, Math.floor(at)),
      at - Math.min(STOPS.length - 2, Math.floor(at)),
    ];
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
    const drawing = svg("svg", {
      viewBox: `0 0 420 ${bottom + 40}`,
      role: "img",
      "aria-label": options.title,
    });
    lines.forEach((line, row) =>
      columns.forEach((column, at) => {
        const value = options.z[line][column];
        if (value === null || value === undefined || (options.log && value <= 0)) return;
        const box = {
          x: left + w * at,
          y: bottom - h * (row + 1),
          width: w + 0.3,
          height: h + 0.3,
          fill: shade(part(value)),
          "shape-rendering": "crispEdges",
        };
        const level = named ? options.ys[line] : short(options.ys[line]);
        const where = `${options.xName} ${short(options.xs[column])}, ${options.yName} ${level}`.replace("  ", " ");
        const said = `${where}: ${Number(value.toPrecision(6))}`;
        drawing.append(svg("rect", box, svg("title", {}, said)));
      }),
    );
    if (options.contours) {
      for (let level = 1; level < 12; level++)
        drawing.append(svg("path", { class: "contour", d: contour(level / 12) }));
    }
    function contour(level) {
      // marching squares between the cells' middles
      let path = "";
      for (let r = 0; r + 1 < lines.length; r++)
        for (let c = 0; c + 1 < columns.length; c++) {
          const corners = [
            [c, r],
            [c + 1, r],
            [c + 1, r + 1],
            [c, r + 1],
          ];
          const values = corners.map(([i, j]) => part(options.z[lines[j]][columns[i]] ?? NaN));
          const cuts = [];
          for (let k = 0; k < 4; k++) {
            const [a, b] = [values[k], values[(k + 1) % 4]];
            if (a < level !== b < level && Number.isFinite(a) && Number.isFinite(b)) {
              const t = (level - a) / (b - a);
              const [p, q] = [corners[k], corners[(k + 1) % 4]];
              cuts.push([
                left + w * (p[0] + t * (q[0] - p[0]) + 0.5),
                bottom - h * (p[1] + t * (q[1] - p[1]) + 0.5),
              ]);
            }
          }
          for (let k = 0; k + 1 < cuts.length; k += 2)
            path += `M${cuts[k].map((v) => v.toFixed(1))}L${cuts[k + 1].map((v) => v.toFixed(1))}`;
        }
      return path;
    }
    for (let k = 0; k < 60; k++)
      drawing.append(
        svg("rect", {
          x: 366,
          y: top + (60 - k - 1) * ((bottom - top) / 60),
          width: 12,
          height: (bottom - top) / 60 + 0.3,
          fill: shade(k / 59),
        }),
      );
    drawing.append(
      svg("text", { class: "start", x: 382, y: top + 8 }, short(options.high)),
      svg("text", { class: "start", x: 382, y: bottom }, short(options.low)),
    );
    const [x0, x1] = [options.xs[0], options.xs[options.xs.length - 1]].map(short);
    drawing.append(
      svg("text", { x: left, y: bottom + 16 }, x0),
      svg("text", { x: left + side, y: bottom + 16 }, x1),
      svg("text", { x: left + side / 2, y: bottom + 30 }, options.xName),
    );
    const shown = named
      ? lines.filter((_, row) => row % Math.ceil(10 / h) === 0)
      : [lines[0], lines[lines.length - 1]];
    for (const line of shown) {
      // A layer's name ends in what it is.
      const text = named ? options.ys[line].slice(-20) : short(options.ys[line]);
      drawing.append(
        svg("text", { class: "end", x: left - 6, y: bottom - h * (lines.indexOf(line) + 0.5), dy: 4 }, text),
      );
    }
    const caption = html("figcaption", {}, options.title);
    const figure = html(
      "figure",
      { class: "panel", "data-panel": options.id },
      html(
        "div",
        { class: "head" },
        caption,
        html("span", { class: "tools" }, csvButton(options.id, options.rows)),
      ),
      drawing,
    );
    if (everyX > 1 || everyY > 1)
      figure.append(html("p", {}, `One of ${everyX * everyY} cells is drawn; the CSV has all.`));
    host.append(figure);
    const frame = svg("rect", { class: "frame", y: top, height: bottom - top, width: 0, x: left });
    drawing.append(frame);
    // Frames one column, the one that another part of the page is looking at.
    const mark = (number) => {
      const at = Math.min(columns.length - 1, Math.floor(number / everyX));
      frame.setAttribute("x", left + w * at);
      frame.setAttribute("width", w);
    };
    return { figure, mark };
  }
  heat.shade = shade;
  return heat;
})();
