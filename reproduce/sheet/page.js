// The sheet: a section per question, and answers that stay in this browser.

// The first questions name the place, so that another sheet in the same browser has its own answers.
const place = "sheet " + data.map((one) => one.item + one.text).join("|").slice(0, 2000);
const answers = new Map(JSON.parse(localStorage.getItem(place) || "[]"));

function count() {
  find("count").textContent = `${answers.size} of ${data.length} answered`;
}

function choices({ item }) {
  const choice = (answer) => {
    const onchange = () => {
      answers.set(item, answer);
      localStorage.setItem(place, JSON.stringify([...answers]));
      count();
    };
    const checked = answers.get(item) === answer ? "" : undefined;
    const input = make("input", { type: "radio", name: item, value: answer, checked, onchange });
    return make("label", {}, input, ` ${answer}`);
  };
  return make("fieldset", {}, ...["left", "tie", "right"].map(choice));
}

function outputs({ rows }) {
  const cell = (text) => (text === null ? make("td", { classes: "null", text: "none" }) : make("td", { text }));
  const heads = ["attribute", "left", "right"].map((text) => make("th", { text }));
  const lines = rows.map(([name, left, right]) =>
    make("tr", { classes: left === right ? undefined : "differs" }, make("td", { text: name }), cell(left), cell(right)));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
}

for (const one of data) {
  const heading = make("h2", { text: `${one.item}. ${one.category}` });
  find("items").append(make("section", {}, heading, make("p", { classes: "text", text: one.text }), outputs(one), choices(one)));
}

find("save").addEventListener("click", () => {
  const lines = data.map(({ item }) => `${item},${answers.get(item) || ""}`);
  download("answers.csv", "text/csv", ["item,answer", ...lines, ""].join("\n"));
});
count();
