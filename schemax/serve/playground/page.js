// The playground: a document and a schema in, a trace out. Texts go into the page as text nodes.
const TYPES = {
  text: { type: "string" },
  number: { type: "number" },
  "whole number": { type: "integer" },
  "yes or no": { type: "boolean" },
  date: { type: "string", format: "date" },
  list: { type: "array", items: { type: "string" } },
  choice: null,
};
const SAMPLE = [
  ["brand", "text", "Maker of the product"],
  ["screen size", "number", "Diagonal in inches"],
  ["resolution", "choice", "720p, 1080p, 4K, 8K"],
  ["smart", "yes or no", ""],
  ["colour", "text", ""],
];
const part = (id) => document.getElementById(id);

function input(value, label) {
  const made = element("input");
  made.value = value;
  made.setAttribute("aria-label", label);
  return made;
}

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function addField(name = "", kind = "text", said = "") {
  const row = element("tr");
  const kinds = element("select");
  kinds.setAttribute("aria-label", "type");
  for (const one of Object.keys(TYPES)) kinds.append(new Option(one, one, false, one === kind));
  const remove = element("button", "×");
  remove.type = "button";
  remove.title = "Remove this field";
  remove.onclick = () => row.remove();
  for (const one of [input(name, "name"), kinds, input(said, "description"), remove]) {
    const cell = element("td");
    cell.append(one);
    row.append(cell);
  }
  part("declared").append(row);
  return row;
}

function fieldsAsSchema() {
  const properties = {};
  for (const row of part("declared").rows) {
    const [name, kind, said] = [...row.querySelectorAll("input, select")].map((one) => one.value.trim());
    if (!name) continue;
    const choices = said.split(",").map((one) => one.trim()).filter(Boolean);
    properties[name] = kind === "choice" ? { enum: choices } : { ...TYPES[kind], ...(said && { description: said }) };
  }
  return { title: "Document", type: "object", properties };
}

function chosen() {
  return document.querySelector("input[name=kind]:checked").value;
}

function schema() {
  if (chosen() === "named") return part("named").value;
  return chosen() === "fields" ? fieldsAsSchema() : JSON.parse(part("json").value);
}

function showKind() {
  // What was declared as fields goes on as JSON Schema.
  if (chosen() === "json" && !part("json").value.trim()) {
    part("json").value = JSON.stringify(fieldsAsSchema(), null, 2);
  }
  for (const kind of ["fields", "named", "json"]) part(kind).hidden = chosen() !== kind;
}

function say(text, wrong = false) {
  part("state").textContent = text;
  part("state").classList.toggle("wrong", wrong);
}

async function ask(path, body) {
  const key = part("key").value;
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  if (answer.status === 401) part("locked").hidden = false;
  const found = await answer.json();
  if (!answer.ok) throw new Error((found.error && found.error.message) || "status " + answer.status);
  return found;
}

part("ask").onsubmit = async (event) => {
  event.preventDefault();
  part("run").disabled = true;
  say("reading ...");
  try {
    const found = await ask("v1/trace", { schema: schema(), document: part("text").value });
    part("result").hidden = false;
    part("row").textContent = JSON.stringify(found.row, null, 2);
    mountTrace(found);
    const errors = found.row.errors.map((error) => error.field + ": " + error.message);
    say(["done in " + found.seconds + " s", ...errors].join("; "), errors.length > 0);
    part("play").click();
  } catch (error) {
    say(error.message, true);
  } finally {
    part("run").disabled = false;
  }
};
part("add").onclick = () => addField().querySelector("input").focus();
for (const one of document.querySelectorAll("input[name=kind]")) one.onchange = showKind;

async function fillNames() {
  try {
    for (const name of (await ask("v1/schemas")).schemas) part("named").append(new Option(name, name));
  } catch (error) {
    say(error.message, true);
  }
}

part("key").onchange = fillNames;
for (const one of SAMPLE) addField(...one);
showKind();
fillNames();
