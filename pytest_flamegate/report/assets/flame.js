// One flame graph with its tools: what is shown, zoomed to, looked for.

const DEEP = 45;
const VIEWS = ["compared", "inverted", "icicle"];

class Flame {
  constructor(section, data) {
    this.section = section;
    this.data = data;
    this.title = section.dataset.title;
    this.folding = section.dataset.folding;
    this.wanted = null;
    this.exact = null;
    this.share = null;
    this.category = null;
    this.inverted = false;
    this.compared = section.classList.contains("compared");
    // The outermost caller of a tall picture would be far down the page.
    this.icicle = data.paths.depth.reduce((most, each) => Math.max(most, each), 0) > DEEP;
    this.opened = this.views_shown;
    this.trees = new Map();
    this.words = new Words(this);
    this.tip = new Tip((node) => this.words.told(node));
    this.chart = new Chart(this);
    this.search = new Search(this);
    this.said = make("p", { class: "said muted", role: "status" });
    this.equip();
    this.look();
  }

  /** The toggles that are down, as the address names them. */
  get views_shown() {
    return VIEWS.filter((name) => this[name]).join(",");
  }

  /** Write zoom, search and view to the address, so that it can be shared and reloaded. */
  store() {
    if (!this.restored) return;
    const state = new URLSearchParams();
    if (this.views_shown !== this.opened) state.set("view", this.views_shown);
    const steps = [];
    for (let node = this.zoomed; node.parent; node = node.parent) steps.unshift(this.tree.kids(node.parent).indexOf(node));
    if (steps.length) state.set("zoom", steps.join("."));
    this.search.store(state);
    if (this.folding === "line" && !this.section.hidden) state.set("folding", "line");
    storeState(this.section.dataset.flame, state);
  }

  /** Show what the address asks for; an address of another page may ask for anything. */
  restore() {
    const state = storedState(this.section.dataset.flame);
    const views = state.has("view") ? state.get("view") : this.opened;
    for (const name of VIEWS) {
      const wanted = views.split(",").includes(name);
      if (wanted !== this[name] && this.toggles[name]) this.toggles[name].click();
    }
    this.search.restore(state);
    let node = this.tree.root;
    for (const step of (state.get("zoom") ?? "").split(".").filter(Boolean)) {
      node = this.tree.kids(node)[Number(step)] ?? node;
    }
    if (node.parent) this.zoom(node);
    this.restored = true;
    if (this.section.hidden && state.get("folding") === "line") this.swap(this.section);
  }

  /** Return the section of the same samples by the other folding, null if there is none. */
  get other() {
    return document.querySelector(`[data-flame="${this.section.dataset.other}"]`);
  }

  /** Show this section or the other one. */
  swap(shown) {
    const hidden = shown === this.section ? this.other : this.section;
    hidden.hidden = true;
    shown.hidden = false;
    for (const section of [hidden, shown]) wake(section).store();
  }

  get tree() {
    const name = `${this.inverted} ${this.compared}`;
    if (!this.trees.has(name)) {
      const paths = new Paths(this.data, this.compared);
      this.trees.set(name, this.inverted ? new Inverted(paths) : new Outward(paths));
    }
    return this.trees.get(name);
  }

  /** Put the tools where the page left room for them, and wake the legend and the tables. */
  equip() {
    this.reset = button("Reset zoom", () => this.zoom(this.tree.root), { title: "Show all (Home)" });
    const views = make("div", { class: "views" }, ...this.views(), this.reset);
    const room = this.section.querySelector(".room");
    room.replaceChildren(make("div", { class: "tools" }, this.search.element, views),
      this.said, make("div", { class: "sheet" }, this.chart.element), this.tip.element);
    this.legend = [...this.section.querySelectorAll(".legend li")].map((item) => this.chip(item));
    for (const table of this.section.querySelectorAll("table.functions")) {
      sortable(table);
      searchable(table, (name) => this.search.exactly(name));
    }
  }

  views() {
    this.toggles = {};
    const toggle = (label, name, title) => {
      const made = button(label, () => {
        this[name] = !this[name];
        press(made, this[name]);
        this.look();
      }, { title, pressed: String(this[name]) });
      this.toggles[name] = made;
      return made;
    };
    return [
      ...(this.data.difference ? [toggle("Difference", "compared", "Show what changed")] : []),
      toggle("Inverted", "inverted", "Functions first, their callers next"),
      toggle("Icicle", "icicle", "The outermost function at the top"),
      ...(this.other ? [this.foldings()] : []),
    ];
  }

  /** Return the switch between functions and lines; both graphs have one. */
  foldings() {
    return this.byLine = button("By line", () => {
      const { other } = this;
      this.swap(other);
      wake(other).byLine.focus();
    }, { title: "A box for each line of the project", pressed: String(this.folding === "line") });
  }

  chip(item) {
    const made = make("button", { type: "button", title: item.title, "aria-pressed": "false" });
    made.append(...item.childNodes);
    const name = item.dataset.category;
    const category = this.data.categories.findIndex(([each]) => each === name);
    made.addEventListener("click", () => this.highlight(category));
    item.replaceChildren(made);
    return [category, made];
  }

  /** Show the whole of what is chosen. */
  look() {
    this.section.classList.toggle("compared", this.compared);
    this.find(this.test, this.exact);
    if (this.test) this.search.count();
    this.zoom(this.tree.root);
  }

  zoom(node) {
    this.zoomed = node;
    this.reset.disabled = node === this.tree.root;
    this.tip.hide();
    this.chart.draw();
    this.say(node.parent ? `Zoomed to ${this.words.aloud(node)}.` : this.summary());
    const source = node.parent && this.source(node);
    if (source) {
      this.said.append(" ", button("Source", () => {
        source.tabIndex = -1;
        source.focus();
      }, { title: "Go to its lines" }));
    }
    this.store();
  }

  /** Return the table with the lines of a function, or the row of a line, if the page has it. */
  source(node) {
    const name = this.words.name(node);
    if (this.folding === "line") {
      return this.sourceRows.get(`${this.words.module(node)}:${name.split(":").at(-1)}`);
    }
    const shown = this.section.parentElement.querySelectorAll("[data-functions]");
    return [...shown].find((each) => each.dataset.functions.split(";").includes(name));
  }

  /** The rows of all lines that the page shows, by file and number: `src/run.c:331`. */
  get sourceRows() {
    if (this.rows) return this.rows;
    this.rows = new Map();
    let file = "";
    for (const each of this.section.parentElement.querySelectorAll("h4, .source td.head.no")) {
      if (each.tagName === "H4") file = each.textContent;
      else this.rows.set(`${file}:${each.textContent.replace("+", "")}`, each.parentElement);
    }
    return this.rows;
  }

  /** Return the text of a line, empty if the page does not show it. */
  code(node) {
    const row = this.folding === "line" && node.frame >= 0 && this.source(node);
    return row ? row.querySelector(".head.code").textContent.trim() : "";
  }

  /** Look for the functions whose name passes `test`; null looks for none. `exact` is the only such name, if known. */
  find(test, exact = null) {
    const { names, frames, functions, total, left, difference } = this.data;
    const hits = test && names.map(test);
    this.test = test;
    this.exact = exact;
    this.wanted = hits && frames.name.map((name) => hits[name]);
    const { paths } = this.tree;
    // The samples of one function are known, also in paths too small to show. Of two long names cut to one they are not.
    const known = exact !== null && names.indexOf(exact) === names.lastIndexOf(exact) ? names.indexOf(exact) : -1;
    this.isLeast = known < 0 && left > 0;
    const matched = (samples, counted) => (known < 0 ? paths.matched(this.wanted, samples) : counted.all[known]);
    this.share = this.wanted && matched(paths.now, functions) / total;
    this.shareBefore = this.wanted && this.compared
      ? matched(paths.before, difference.functions) / difference.total : null;
    this.chart.mark();
  }

  highlight(category) {
    this.category = this.category === category ? null : category;
    for (const [each, made] of this.legend) press(made, each === this.category);
    this.chart.mark();
  }

  isMatch(node) {
    return Boolean(this.wanted?.[node.frame]);
  }

  isFaint(node) {
    if (node.frame < 0) return false;
    if (this.wanted) return !this.wanted[node.frame];
    // What changed has no legend of the kinds of work that would tell why a box is faint.
    return !this.compared && this.category !== null && this.data.frames.category[node.frame] !== this.category;
  }

  say(text) {
    this.said.textContent = text;
  }

  summary() {
    const { total, left, difference } = this.data;
    const { unit } = this.words;
    const told = this.compared
      ? [`${difference.base} → ${difference.head}`, `width: ${this.words.measured()}, the larger side of a function that changed`,
        "colour and figure: a function's own change"]
      : [`${figures.plural(total, unit)}`, `width: share of ${unit}s`];
    const side = this.icicle ? "above" : "below";
    told.push(this.inverted ? `each box calls the one ${side} it` : `each box was called by the one ${side} it`);
    if (left) told.push(`${figures.plural(left, "path")} too small to show are one box`);
    return `${told.join(" · ")}.`;
  }
}
