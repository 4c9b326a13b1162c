// The list of runs: found, sorted and ticked in the page; what was chosen stays while the list is renewed.
(() => {
  const ticked = new Set();
  const view = { find: "", state: "", column: null, down: false };
  const section = () => document.getElementById("runs");
  const rows = () => [...section().querySelectorAll("tbody tr")];

  function arrange() {
    for (const box of section().querySelectorAll("input[name=run]")) box.checked = ticked.has(box.value);
    const words = view.find.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows()) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || (view.state && row.dataset.state !== view.state);
    }
    if (view.column !== null) sort();
    tell();
  }
  function sort() {
    const of = (row) => {
      const cell = row.cells[view.column + 1];
      if (!cell) return [1, ""];
      return cell.dataset.by === undefined ? [0, cell.textContent] : [0, Number(cell.dataset.by)];
    };
    const compare = (a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x[0] !== y[0]) return x[0] - y[0]; // rows without such a cell stay last
      const order =
        typeof x[1] === "number" && typeof y[1] === "number"
          ? x[1] - y[1]
          : String(x[1]).localeCompare(String(y[1]), "en", { numeric: true });
      return view.down ? -order : order;
    };
    section().querySelector("tbody").append(...rows().sort(compare));
    for (const head of section().querySelectorAll("th[data-column]")) {
      const is = Number(head.dataset.column) === view.column;
      if (is) head.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }
  function tell() {
    const there = new Set([...section().querySelectorAll("input[name=run]")].map((box) => box.value));
    for (const key of ticked) if (!there.has(key)) ticked.delete(key);
    const compare = document.getElementById("compare");
    compare.disabled = !ticked.size;
    compare.textContent = ticked.size > 1 ? `Compare ${ticked.size} runs` : ticked.size ? "Open" : "Compare";
    const shown = rows().filter((row) => !row.hidden).length;
    const said = shown === rows().length ? "" : `${shown.toLocaleString("en")} of ${rows().length.toLocaleString("en")}`;
    document.getElementById("ticked").textContent = said;
  }
  function prepare() {
    for (const head of section().querySelectorAll("th[data-column]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => {
        const column = Number(head.dataset.column);
        view.down = view.column === column && !view.down;
        view.column = column;
        sort();
      });
      head.replaceChildren(button);
    }
    const all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", "tick all that are listed");
    all.addEventListener("change", () => {
      for (const row of rows()) {
        const box = row.querySelector("input[name=run]");
        if (!box || row.hidden) continue;
        if (all.checked) ticked.add(box.value);
        else ticked.delete(box.value);
      }
      arrange();
    });
    section().querySelector("th").replaceChildren(all);
    arrange();
  }
  document.addEventListener("change", (event) => {
    if (event.target.name !== "run") return;
    if (event.target.checked) ticked.add(event.target.value);
    else ticked.delete(event.target.value);
    tell();
  });
  for (const label of document.querySelectorAll(".scripted")) label.hidden = false;
  document.getElementById("find").addEventListener("input", (event) => {
    view.find = event.target.value;
    arrange();
  });
  document.getElementById("state").addEventListener("change", (event) => {
    view.state = event.target.value;
    arrange();
  });
  for (const box of document.querySelectorAll("input[name=run]:checked")) ticked.add(box.value); // after "back"
  prepare();
  live.follow((_, changed) => {
    if (changed.some((one) => one.id === "runs")) prepare();
  });
})();
