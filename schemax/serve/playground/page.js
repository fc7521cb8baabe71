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

async function ask(path, body, accept = "application/json") {
  const key = part("key").value;
  const headers = { "Content-Type": "application/json", Accept: accept, ...(key && { Authorization: "Bearer " + key }) };
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  if (answer.status === 401) part("locked").hidden = false;
  if (!answer.ok) throw wrong(await answer.json(), "status " + answer.status);
  return answer;
}

function wrong(found, otherwise) {
  return new Error((found.error && found.error.message) || otherwise);
}

// What every server-sent event says, as they come.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let begun = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (begun + value).split("\n\n");
    begun = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

// Shows every pass once it is done, and the whole in the end, which it returns.
async function follow(answer) {
  let shown = null;
  for await (const event of eventsOf(answer)) {
    if (event.type === "end") {
      shown = event;
    } else if (event.type === "begin") {
      shown = { ...event, passes: [], row: { fields: {} } };
      part("result").hidden = false;
      part("row").textContent = "";
    } else if (event.type === "pass") {
      shown.passes.length = event.number; // where memory runs out, passes begin again
      shown.passes.push(event.written);
      Object.assign(shown.row.fields, event.fields);
    } else {
      throw wrong(event, "the server failed");
    }
    mountTrace(shown);
  }
  if (!shown || shown.type !== "end") throw new Error("the server has gone");
  return shown;
}

part("ask").onsubmit = async (event) => {
  event.preventDefault();
  part("run").disabled = true;
  say("reading ...");
  part("result").hidden = true; // of what was asked before
  try {
    const asked = { schema: schema(), document: part("text").value };
    const found = await follow(await ask("v1/trace", asked, "text/event-stream"));
    part("row").textContent = JSON.stringify(found.row, null, 2);
    const errors = found.row.errors.map((error) => error.field + ": " + error.message);
    say(["done in " + found.seconds + " s", ...errors].join("; "), errors.length > 0);
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
    for (const name of (await (await ask("v1/schemas")).json()).schemas) part("named").append(new Option(name, name));
  } catch (error) {
    say(error.message, true);
  }
}

part("key").onchange = fillNames;
for (const one of SAMPLE) addField(...one);
showKind();
fillNames();
