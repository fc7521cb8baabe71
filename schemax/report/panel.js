// The panel beside the table: the document at the cursor, or the distribution of a field.

const panel = {
  element: find("panel"),
  showing: null, // null, {} for the document at the cursor, or {field} for a distribution

  document() {
    this.open({});
  },

  distribution(field) {
    this.open({ field });
  },

  open(showing) {
    this.showing = showing;
    document.body.classList.add("open");
    const wasHidden = this.element.hidden;
    this.element.hidden = false;
    if (wasHidden) grid.moveTo(grid.at.row, grid.at.column); // the table has become narrower
    this.draw();
  },

  close() {
    this.showing = null;
    this.element.hidden = true;
    document.body.classList.remove("open");
    grid.element.focus();
    grid.paint();
  },

  /** After the cursor moved. */
  follow() {
    if (this.showing && this.showing.field === undefined) this.draw();
  },

  draw() {
    if (!this.showing) return;
    const { field } = this.showing;
    const row = grid.row;
    const scrolled = this.element.querySelector(".list")?.scrollTop ?? 0;
    const focused = this.controls().indexOf(document.activeElement);
    if (field !== undefined) this.element.replaceChildren(...distributionView(field));
    else if (row) this.element.replaceChildren(...documentView(row, grid.field));
    else this.element.replaceChildren(panelTop(make("h2", { text: "No document" })));
    const list = this.element.querySelector(".list");
    if (list) list.scrollTop = scrolled;
    for (const active of this.element.querySelectorAll("mark.active, .box.active, .item.active")) {
      active.scrollIntoView({ block: "nearest" });
    }
    if (focused >= 0) (this.controls()[focused] ?? this.element).focus(); // what had it is gone
  },

  controls() {
    return [...this.element.querySelectorAll("button, select, mark")];
  },
};
