// The keyboard.

const page = () => Math.max(1, Math.floor(grid.element.clientHeight / HEIGHT) - 2); // rows of a screen

/** By key, where it leads from a place of the table. */
const MOVES = {
  ArrowDown: (row, column) => [row + 1, column],
  ArrowUp: (row, column) => [row - 1, column],
  ArrowLeft: (row, column) => [row, column - 1],
  ArrowRight: (row, column) => [row, column + 1],
  j: (row, column) => [row + 1, column],
  k: (row, column) => [row - 1, column],
  PageDown: (row, column) => [row + page(), column],
  PageUp: (row, column) => [row - page(), column],
  Home: (row, column, ctrl) => (ctrl ? [0, column] : [row, 0]),
  End: (row, column, ctrl) => (ctrl ? [Infinity, column] : [row, Infinity]),
};

const ACTIONS = {
  Enter: () => panel.document(),
  Escape: () => panel.close(),
  "/": () => find("search").select(),
  s: () => sortBy(grid.columns[grid.at.column].by),
  d: () => grid.field !== null && panel.distribution(grid.field),
  "?": () => find("help").showModal(),
};

function onKey(event) {
  const { key, target } = event;
  if (event.altKey || event.metaKey || find("help").open) return;
  if (target.matches("input, select")) {
    if (key !== "Escape" && !(key === "Enter" && target.type === "search")) return;
    event.preventDefault(); // of a search, Escape would drop the words
    grid.element.focus();
    return;
  }
  if (key === "Enter" && target.matches("button, mark")) return; // theirs
  const move = MOVES[key];
  const ctrl = event.ctrlKey && (key === "Home" || key === "End");
  if (event.ctrlKey && !ctrl) return;
  if (move) grid.moveTo(...move(grid.at.row, grid.at.column, ctrl));
  else if (ACTIONS[key]) ACTIONS[key]();
  else return;
  event.preventDefault();
}
