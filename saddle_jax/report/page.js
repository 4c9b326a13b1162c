// What the page shows: the runs' numbers from its JSON element, as charts and as CSV.
(() => {
  const { html, svg, colour, dash, csvButton, panel, most, hidden, redraw, redraws } = charts;
  const data = live.read(document.getElementById("data").textContent);
  const BANDS = { std: "± standard deviation", interval: "95 % interval of the mean", none: "none" };
  const view = { against: "epoch", band: "std", single: false };
  const hostOf = (id) => {
    // A place that scripts fill, which stays when the text around it is replaced.
    const host = document.getElementById(id);
    if (host) host.dataset.kept = "";
    return host;
  };

  // ---- Controls and legend
  const runsWith = (key) => data.runs.some((run) => run.columns[key]);
  const titleOf = (key) => (data.axes.find(([axis]) => axis === key) || [key, key])[1];
  const seedsOf = (group) => (group.runs.length > 1 ? `${group.label}, ${group.runs.length} seeds` : group.label);
  function chooser(id, text, options, chosen, change) {
    const select = html("select", { id });
    for (const [value, name] of options) select.append(html("option", { value }, name));
    select.value = chosen;
    select.addEventListener("change", () => {
      change(select.value);
      redraw();
    });
    return html("span", {}, html("label", { for: id }, text), select);
  }
  function legend() {
    const host = html("div", { class: "legend", role: "group", "aria-label": "Runs: press to hide or show" });
    data.groups.forEach((group, number) => {
      const line = { class: "curve", d: "M0 4H24", "stroke-dasharray": dash(group.look) };
      const mark = svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("path", line));
      mark.style.setProperty("--run", colour(group.look));
      const attributes = { type: "button", "aria-pressed": String(!hidden.has(number)) };
      const button = html("button", attributes, mark, seedsOf(group));
      button.addEventListener("click", () => {
        if (!hidden.delete(number)) hidden.add(number);
        button.setAttribute("aria-pressed", String(!hidden.has(number)));
        redraw();
      });
      host.append(button);
    });
    return host;
  }
  function thinnedNote() {
    const told = [];
    if (data.left_out) {
      const [left, every] = [data.left_out, data.left_out + data.names].map((count) => count.toLocaleString("en"));
      told.push(html("p", { class: "small" }, `${left} of ${every} metrics are not shown; metrics.jsonl has all.`));
    }
    const downsampled = data.runs.filter((run) => run.lines > (run.columns.step || []).length);
    if (!downsampled.length) return told;
    const all = downsampled.reduce((sum, run) => sum + run.lines, 0).toLocaleString("en");
    const kept = downsampled.reduce((sum, run) => sum + (run.columns.step || []).length, 0).toLocaleString("en");
    return [...told, html("p", { class: "small" }, `Downsampled: ${kept} of ${all} lines, with every peak; metrics.jsonl has all.`)];
  }
  function controls() {
    const host = hostOf("controls");
    if (!host) return;
    const parts = [chooser("x-axis", "against ", data.axes, view.against, (value) => (view.against = value))];
    if (data.groups.some((group) => group.runs.length > 1)) {
      const box = html("input", { type: "checkbox", id: "single" });
      box.checked = view.single;
      box.addEventListener("change", () => {
        view.single = box.checked;
        redraw();
      });
      parts.push(
        chooser("band", "band ", Object.entries(BANDS), view.band, (value) => (view.band = value)),
        html("label", {}, box, " seeds one by one"),
      );
    }
    const all = html("span", { class: "tools" }, "all metrics ", csvButton("metrics", everything));
    host.replaceChildren(html("div", { class: "bar" }, ...parts, all), legend(), ...thinnedNote());
  }
  function everything() {
    // all lines of all runs, lists spread over columns named after the layers
    const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.columns)))];
    const widths = names.map((name) =>
      most(
        data.runs.flatMap((run) => (run.columns[name] || []).map((v) => (Array.isArray(v) ? v.length : 0))),
      ),
    );
    const label = (name, k) => `${name}[${name.endsWith("_by_layer") ? (data.runs[0].layers[k] ?? k) : k}]`;
    const rows = [
      [
        "run",
        ...names.flatMap((name, n) =>
          widths[n] > 0 ? Array.from({ length: widths[n] }, (_, k) => label(name, k)) : [name],
        ),
      ],
    ];
    for (const run of data.runs) {
      for (let line = 0; line < (run.columns.step || []).length; line++) {
        rows.push([
          run.name,
          ...names.flatMap((name, n) => {
            const value = run.columns[name] ? run.columns[name][line] : null;
            return widths[n] > 0
              ? Array.from({ length: widths[n] }, (_, k) => (value ? value[k] : null))
              : [value];
          }),
        ]);
      }
    }
    return rows;
  }

  // ---- Curves of the metrics: a group of seeds is a mean with a band, or, on demand, its seeds
  function linesOf(group, number, key) {
    const mean = view.single ? null : group.means[key];
    if (!mean || !mean.at[view.against]) return seedsAlone(group, number, key, group.runs);
    const scale = { interval: mean.interval, std: 1, none: 0 }[view.band];
    const halves = scale ? mean.std.map((std) => std * scale) : null;
    const name = `${group.label}, mean of ${mean.runs.length} seeds`;
    const line = { group: number, name, look: group.look, xs: mean.at[view.against], ys: mean.mean, halves };
    const others = group.runs.filter((index) => !mean.runs.includes(index));
    return [line, ...seedsAlone(group, number, key, others)];
  }
  function seedsAlone(group, number, key, indices) {
    return indices.flatMap((index) => {
      const run = data.runs[index];
      const [xs, ys] = [run.columns[view.against], run.columns[key]];
      if (!xs || !ys) return [];
      const has = ys.map((_, i) => i).filter((i) => ys[i] !== null && xs[i] !== null);
      const line = { group: number, name: run.name, look: group.look, halves: null };
      return has.length ? [{ ...line, xs: has.map((i) => xs[i]), ys: has.map((i) => ys[i]) }] : [];
    });
  }
  function curves() {
    const host = hostOf("panels");
    if (!host) return;
    host.replaceChildren();
    for (const { key, title, log, factor } of data.panels) {
      panel(host, {
        id: key,
        title,
        log,
        factor,
        xName: () => titleOf(view.against),
        series: () => data.groups.flatMap((group, number) => linesOf(group, number, key)),
        rows: () => {
          const axes = data.axes.map(([axis]) => axis).filter(runsWith);
          const lines = data.runs.flatMap((run) =>
            (run.columns[key] || []).flatMap((value, i) =>
              value === null ? [] : [[run.name, ...axes.map((axis) => (run.columns[axis] || [])[i]), value]],
            ),
          );
          return [["run", ...axes, key], ...lines];
        },
      });
    }
  }

  // ---- CSV of what stands in the page already, and graphs that move
  function enhance(root) {
    for (const element of root.querySelectorAll("table[data-csv]")) {
      const rows = () =>
        [...element.rows].map((row) => [...row.cells].map((one) => one.dataset.value ?? one.textContent));
      element.parentElement.after(csvButton(element.dataset.csv, rows));
    }
    for (const figure of root.querySelectorAll("figure[data-edges]")) {
      const { edges } = data.runs[Number(figure.dataset.edges)];
      const turns = figure.querySelector(".turns");
      const head = ["from", "to", "weight", ...(turns ? ["step"] : [])];
      figure.querySelector("figcaption").append(
        " ",
        csvButton("edges", () => [head, ...edges.map(([i, j, ...rest]) => [j, i, ...rest])]),
      );
      if (turns) agents.takeTurns(turns);
    }
    for (const figure of root.querySelectorAll("figure[data-partition]")) {
      const run = data.runs[Number(figure.dataset.partition)];
      if (run.class_counts)
        figure.querySelector("figcaption").append(
          " ",
          csvButton("class counts", () => [
            ["agent", ...run.class_names],
            ...run.class_counts.map((row, agent) => [agent, ...row]),
          ]),
        );
    }
    const ends = root.matches("#agents") ? root : root.querySelector("#agents");
    const told = data.runs.filter((run) => Array.isArray(run.agents));
    if (ends && ends.querySelector("p") && told.length)
      ends.querySelector("p").append(
        " ",
        csvButton("agents", () => [
          ["run", "agent", "test"],
          ...told.flatMap((run) => run.agents.map((value, agent) => [run.name, agent, value])),
        ]),
      );
  }

  // ---- All of it, once or again: what is drawn is built anew only if there is something else to draw
  let shape = null;
  let refill = null;
  function build() {
    const now = JSON.stringify([data.axes, data.panels, data.groups.map((group) => [group.label, group.runs.length])]);
    const hosts = ["panels", "sharpness-panels", "landscapes", "contractions"].filter(
      (id) => document.getElementById(id) && !document.getElementById(id).children.length,
    );
    if (now !== shape || hosts.length) {
      shape = now;
      redraws.length = 0;
      curves();
      measured(data, hostOf);
      controls();
    } else {
      redraw();
    }
    const host = hostOf("viewer");
    if (!host) refill = null;
    else if (refill && host.children.length) refill();
    else refill = agents.viewer(host, data);
  }
  enhance(document.querySelector("main"));
  build();
  live.follow((answer, changed) => {
    Object.assign(data, answer.data);
    for (const section of changed) enhance(section);
    build();
  });
  // On paper nothing can be opened. Long lists stay on the screen.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open], .screen)")];
    for (const element of opened) element.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const element of opened) element.open = false;
  });
})();
