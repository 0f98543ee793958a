// Finding frames: by a piece of text, by a regular expression, or exactly one of the table.

/** Return a test of names; null for nothing asked. SyntaxError where the expression is wrong. */
function tester(asked, isExpression) {
  if (!asked) return null;
  if (isExpression) {
    const expression = new RegExp(asked, "iu");
    return (name) => expression.test(name);
  }
  const piece = asked.toLowerCase();
  return (name) => name.toLowerCase().includes(piece);
}

class Search {
  constructor(flame) {
    this.flame = flame;
    this.step = -1;
    this.input = make("input", {
      type: "search", placeholder: `Search ${flame.folding}s`, "aria-label": `Search ${flame.folding}s`,
      spellcheck: "false", autocomplete: "off",
      title: "Ctrl+F or / · Enter: next · Shift+Enter: previous · Escape: clear",
    });
    this.expression = button(".*", () => this.toggle(),
      { title: "Read the search as a regular expression", name: "Regular expression", pressed: "false" });
    this.before = button("‹", () => this.next(-1), { title: "Previous match", name: "Previous match" });
    this.after = button("›", () => this.next(1), { title: "Next match", name: "Next match" });
    this.found = make("span", { class: "found", role: "status" });
    this.input.addEventListener("input", () => this.ask());
    this.input.addEventListener("blur", () => this.flame.tip.hide());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.element = make("div", { class: "search", role: "search" },
      this.input, this.expression, this.before, this.after, this.found);
    this.count();
  }

  toggle() {
    press(this.expression, !this.isExpression);
    this.ask();
  }

  get isExpression() {
    return this.expression.getAttribute("aria-pressed") === "true";
  }

  store(state) {
    if (!this.input.value) return;
    state.set("search", this.input.value);
    if (this.exact || this.isExpression) state.set("by", this.exact ? "name" : "expression");
  }

  restore(state) {
    const asked = state.get("search");
    if (!asked) return;
    if (state.get("by") === "name") {
      this.exactly(asked);
      return;
    }
    this.input.value = asked;
    if (state.get("by") === "expression") press(this.expression, true);
    this.ask();
  }

  ask() {
    this.exact = false;
    this.search();
    this.flame.store();
  }

  search() {
    const { isExpression } = this;
    try {
      this.flame.find(tester(this.input.value, isExpression));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.flame.find(null);
      this.found.textContent = "not a regular expression";
      return;
    }
    this.count();
  }

  /** Look for the functions of exactly this name; a second time, for nothing. */
  exactly(name) {
    this.input.value = this.input.value === name ? "" : name;
    this.exact = this.input.value === name;
    // A chain of callers is one box, named by all of them.
    const test = (each) => each.split(" › ").some((part) => part.replace(/ ×[\d,]+$/u, "") === name);
    this.flame.find(this.exact ? test : null, this.exact ? name : null);
    this.count();
    this.flame.store();
  }

  clear() {
    this.input.value = "";
    this.ask();
  }

  count() {
    this.step = -1;
    const { share, shareBefore, isLeast } = this.flame;
    const told = (isLeast ? "at least " : "") + (shareBefore === null ? "" : `${figures.share(shareBefore)} → `)
      + figures.share(share ?? 0);
    this.before.hidden = this.after.hidden = share === null;
    this.found.textContent = share === null ? ""
      : share || shareBefore ? `${told} of ${this.flame.words.unit}s match`
        : isLeast ? "no match in the paths shown" : "no match";
  }

  next(step) {
    const { matches } = this.flame.chart;
    if (!matches.length) return;
    this.step = this.step < 0 && step < 0 ? matches.length - 1
      : (this.step + step + matches.length) % matches.length;
    const { element, node } = matches[this.step];
    this.flame.chart.point(matches[this.step]);
    element.scrollIntoView({ block: "nearest" });
    this.flame.say(`${this.step + 1} of ${matches.length}: ${this.flame.words.aloud(node)}`);
  }

  key(event) {
    if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.clear();
    else return;
    event.preventDefault();
  }
}
