"use strict";
// A page that a server keeps up to date: it asks for what is new, and takes over the sections that changed.
const live = (() => {
  const EVERY = 2000; // milliseconds between two questions
  const known = new Map(); // by section: its text as the server sent it last

  // The parts of a page that scripts fill stay as they are when the text around them is replaced.
  const KEPT = "[data-kept]";

  function adopt(sections) {
    // Server-made text is parsed without running anything, and put in the place of the old one.
    const changed = [];
    for (const { name, text } of sections) {
      if (known.get(name) === text) continue;
      known.set(name, text);
      const fresh = new DOMParser().parseFromString(text, "text/html").body.firstElementChild;
      const old = document.getElementById(name);
      if (!fresh) {
        if (old) old.remove();
        continue;
      }
      document.adoptNode(fresh);
      if (old) {
        for (const host of old.querySelectorAll(KEPT)) {
          const place = fresh.querySelector(`#${host.id}`);
          if (place) place.replaceWith(host);
        }
        const open = [...old.querySelectorAll("details[open] > summary")].map((one) => one.textContent);
        const focused = old.contains(document.activeElement) ? document.activeElement : null;
        old.replaceWith(fresh);
        for (const summary of fresh.querySelectorAll("details > summary"))
          if (open.includes(summary.textContent)) summary.parentElement.open = true;
        if (focused) refocus(fresh, focused);
      } else {
        const after = sections.slice(sections.findIndex((one) => one.name === name) + 1);
        const next = after.map((one) => document.getElementById(one.name)).find(Boolean);
        document.querySelector("main").insertBefore(fresh, next || null);
      }
      changed.push(fresh);
    }
    const names = sections.map((one) => one.name);
    for (const section of document.querySelectorAll("main > section"))
      if (!names.includes(section.id)) section.remove();
    return changed;
  }
  function refocus(root, element) {
    if (element.isConnected) element.focus();
    else {
      const alike = [...root.querySelectorAll(element.localName)];
      const same = alike.find(
        (one) => one.textContent === element.textContent && one.value === element.value && one.name === element.name,
      );
      if (same) same.focus();
    }
  }

  // JSON whose objects have no names but their own: a metric may be called "constructor" or "__proto__".
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const bare = (_, value) => (isObject(value) ? Object.assign(Object.create(null), value) : value);
  const read = (text) => JSON.parse(text, bare);

  // Asks the address in the body's data-live now and then; arrived(answer, changed sections) draws.
  function follow(arrived) {
    const { live: address } = document.body.dataset;
    let { version } = document.body.dataset;
    if (!address) return;
    const light = document.getElementById("live");
    const say = (text, kind) => {
      if (light.textContent !== text) light.textContent = text;
      light.className = `light ${kind}`;
    };
    async function ask() {
      try {
        const answer = await fetch(address, { headers: { "If-None-Match": version }, cache: "no-store" });
        if (answer.status !== 304) {
          if (!answer.ok) throw new Error(String(answer.status));
          const found = read(await answer.text());
          version = answer.headers.get("ETag");
          arrived(found, adopt(found.sections));
        }
        say("live", "on");
      } catch (error) {
        say(error instanceof TypeError ? "the server does not answer" : `the server refuses: ${error.message}`, "off");
      }
    }
    async function loop() {
      if (!document.hidden) await ask();
      setTimeout(loop, EVERY);
    }
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) ask();
    });
    say("live", "on");
    setTimeout(loop, EVERY / 2);
  }
  return { follow, read };
})();
