
"use strict";
const items = JSON.parse(document.getElementById("data").textContent);
// Of these questions alone: another sheet in the same browser has answers of its own.
const place = "sheet " + items.map((one) => one.item + one.text).join("|").slice(0, 2000);
const answers = new Map(JSON.parse(localStorage.getItem(place) || "[]"));

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function count() {
  document.getElementById("count").textContent = `${answers.size} of ${items.length} answered`;
}

function value(text) {
  return text === null ? element("td", "none", "null") : element("td", text);
}

function choices(one) {
  const made = element("fieldset");
  for (const answer of ["left", "tie", "right"]) {
    const label = element("label");
    const input = element("input");
    Object.assign(input, { type: "radio", name: one.item, value: answer });
    input.checked = answers.get(one.item) === answer;
    input.addEventListener("change", () => {
      answers.set(one.item, answer);
      localStorage.setItem(place, JSON.stringify([...answers]));
      count();
    });
    label.append(input, " " + answer);
    made.append(label);
  }
  return made;
}

for (const one of items) {
  const section = element("section");
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of ["attribute", "left", "right"]) head.append(element("th", name));
  const body = table.createTBody();
  for (const [name, left, right] of one.rows) {
    const row = body.insertRow();
    row.className = left === right ? "" : "differs";
    row.append(element("td", name), value(left), value(right));
  }
  section.append(
    element("h2", `${one.item}. ${one.category}`), element("p", one.text, "text"), table, choices(one),
  );
  document.getElementById("items").append(section);
}

document.getElementById("save").addEventListener("click", () => {
  const lines = items.map((one) => `${one.item},${answers.get(one.item) || ""}`);
  const link = element("a");
  link.href = URL.createObjectURL(new Blob(["item,answer\n" + lines.join("\n") + "\n"], { type: "text/csv" }));
  link.download = "answers.csv";
  link.click();
});
count();
