"use strict";
// Plays back a trace: a row per field, a column per pass. The document's text and all values come
// in as text nodes, never as markup. Of a trace that goes on, more of the same is mounted again.
let timer = null;

function mountTrace(data) {
  const at = document.getElementById("at");
  const play = document.getElementById("play");
  const passes = data.passes;
  const fields = data.fields || [...new Set(passes.flat().map((written) => written.field))];
  const results = data.row.fields || {};
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function shown(text) {
    return text.replace(/\n/g, "⏎").replace(/^ /, "␣");
  }

  function percent(share) {
    return share >= 0.9995 ? "100 %" : (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";
  }

  function token(written) {
    const made = element("span", shown(written.text), "token");
    made.style.background = "rgb(86 180 233 / " + (0.06 + 0.44 * written.probability).toFixed(2) + ")";
    if (written.probability < 0.5) made.classList.add("low");
    made.tabIndex = 0;
    const rivals = written.rivals.map(([text, share]) => shown(text) + " " + percent(share)).join(" · ");
    const told = rowOf(written) + ": " + shown(written.text) + " with " + percent(written.probability) + "; likeliest: " + rivals;
    made.title = told;
    for (const event of ["mouseenter", "focus"]) {
      made.addEventListener(event, () => { document.getElementById("rivals").textContent = told; });
    }
    return made;
  }

  function value(name) {
    const found = results[name] ? results[name].value : undefined;
    if (found === undefined || found === null) return "–";
    return typeof found === "string" ? found : JSON.stringify(found);
  }

  function sureness(name) {
    const found = results[name] && results[name].value !== null ? results[name].confidence : null;
    return found === null || found === undefined ? "" : " " + percent(found);
  }

  // A field's own row, and those of what was written once more: a second chance, a choice as a text.
  function rowOf(written) {
    return written.field + (written.again ? " (second chance)" : "") + (written.as_text ? " (as text)" : "");
  }

  function rows() {
    return fields.flatMap((field) => {
      const others = passes.flat().filter((written) => written.field === field).map(rowOf);
      return [...new Set([field, ...others])].map((name) => [field, name]);
    });
  }

  function fill() {
    const head = document.getElementById("head");
    head.replaceChildren();
    document.getElementById("body").replaceChildren();
    head.append(element("th", "field"));
    passes.forEach((_, number) => head.append(element("th", "pass " + (number + 1))));
    head.append(element("th", "value"));
    for (const [field, name] of rows()) {
      const row = element("tr");
      row.append(element("th", name));
      passes.forEach((one, number) => {
        const cell = element("td");
        cell.dataset.pass = number;
        for (const written of one) if (rowOf(written) === name) cell.append(token(written));
        row.append(cell);
      });
      const last = element("td", name === field ? value(field) : "", "value");
      if (name === field) {
        last.append(element("small", sureness(field)));
        if (results[field] && results[field].note) last.append(element("div", results[field].note, "note"));
      }
      last.dataset.pass = Math.max(...passes.map((one, number) => (one.some((w) => w.field === field) ? number : -1)));
      row.append(last);
      document.getElementById("body").append(row);
    }
  }

  // Spans are offsets into the texts by Unicode characters, as Python counts them.
  function marked(until) {
    const place = document.getElementById("document");
    const characters = Array.from(data.text);
    const spans = [];
    for (const name of fields) {
      const last = passes.reduce((found, one, number) => (one.some((w) => w.field === name) ? number : found), -1);
      if (last >= until || !results[name]) continue;
      for (const span of results[name].spans || [results[name].span]) {
        if (span && span.field === data.field) spans.push([span.start, span.end, name]);
      }
    }
    spans.sort((a, b) => a[0] - b[0]);
    place.replaceChildren();
    let done = 0;
    for (const [start, end, name] of spans) {
      if (start < done) continue;
      place.append(characters.slice(done, start).join(""));
      const mark = element("mark", characters.slice(start, end).join(""));
      mark.title = name + sureness(name);
      place.append(mark);
      done = end;
    }
    place.append(characters.slice(done).join(""));
  }

  function show(until) {
    at.value = until;
    for (const cell of document.querySelectorAll("[data-pass]")) {
      cell.classList.toggle("later", Number(cell.dataset.pass) >= until);
    }
    document.getElementById("count").textContent =
      until + " of " + passes.length + " passes" +
      (data.one_by_one ? "; one token at a time: " + data.one_by_one : " so far");
    marked(until);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.onclick = () => {
    if (timer !== null) return stop();
    if (Number(at.value) >= passes.length) show(0);
    play.textContent = "Stop";
    timer = setInterval(() => {
      show(Number(at.value) + 1);
      if (Number(at.value) >= passes.length) stop();
    }, reduced ? 50 : 500);
  };
  at.oninput = () => { stop(); show(Number(at.value)); };

  stop();
  at.max = passes.length;
  document.getElementById("summary").textContent =
    data.prompt_tokens + " tokens read; " + fields.length + " fields in " + passes.length + " passes";
  fill();
  show(passes.length);
}
