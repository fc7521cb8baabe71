// The playground: a document and a schema in, a trace out.
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

function addField(name = "", kind = "text", said = "") {
  const kinds = Object.keys(TYPES).map((one) => make("option", { text: one, selected: one === kind ? "" : undefined }));
  const row = make("tr");
  const controls = [
    make("input", { value: name, "aria-label": "name" }),
    make("select", { "aria-label": "type" }, ...kinds),
    make("input", { value: said, "aria-label": "description" }),
    make("button", { type: "button", text: "×", title: "Remove this field", onclick: () => row.remove() }),
  ];
  row.append(...controls.map((control) => make("td", {}, control)));
  find("declared").append(row);
  return row;
}

function fieldsAsSchema() {
  const properties = {};
  for (const row of find("declared").rows) {
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
  if (chosen() === "named") return find("named").value;
  return chosen() === "fields" ? fieldsAsSchema() : JSON.parse(find("json").value);
}

function showKind() {
  // Declared fields go on as JSON Schema.
  if (chosen() === "json" && !find("json").value.trim()) {
    find("json").value = JSON.stringify(fieldsAsSchema(), null, 2);
  }
  for (const kind of ["fields", "named", "json"]) find(kind).hidden = chosen() !== kind;
}

function say(text, wrong = false) {
  find("state").textContent = text;
  find("state").classList.toggle("wrong", wrong);
}

async function ask(path, body, accept = "application/json") {
  const key = find("key").value;
  const headers = { "Content-Type": "application/json", Accept: accept, ...(key && { Authorization: "Bearer " + key }) };
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  if (answer.status === 401) find("locked").hidden = false;
  if (!answer.ok) throw wrong(await answer.json(), "status " + answer.status);
  return answer;
}

function wrong(found, otherwise) {
  return new Error((found.error && found.error.message) || otherwise);
}

// The data of server-sent events, as these come.
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
      find("result").hidden = false;
      find("row").textContent = "";
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

find("ask").onsubmit = async (event) => {
  event.preventDefault();
  find("run").disabled = true;
  say("reading ...");
  find("result").hidden = true; // of what was asked before
  try {
    const asked = { schema: schema(), document: find("text").value };
    const found = await follow(await ask("v1/trace", asked, "text/event-stream"));
    find("row").textContent = JSON.stringify(found.row, null, 2);
    const errors = found.row.errors.map((error) => error.field + ": " + error.message);
    say(["done in " + found.seconds + " s", ...errors].join("; "), errors.length > 0);
  } catch (error) {
    say(error.message, true);
  } finally {
    find("run").disabled = false;
  }
};
find("add").onclick = () => addField().querySelector("input").focus();
for (const one of document.querySelectorAll("input[name=kind]")) one.onchange = showKind;

async function fillNames() {
  try {
    for (const name of (await (await ask("v1/schemas")).json()).schemas) find("named").append(make("option", { text: name }));
  } catch (error) {
    say(error.message, true);
  }
}

find("key").onchange = fillNames;
for (const one of SAMPLE) addField(...one);
showKind();
fillNames();
