// What stands beside the pointer, or under the focus: everything known of one box.

let tips = 0;

class Tip {
  constructor(tell) {
    this.tell = tell;
    this.node = null;
    this.element = make("div", { class: "tip", role: "tooltip", hidden: true });
    this.element.id = `tip-${tips++}`;
  }

  at(node, x, y) {
    if (node !== this.node) {
      this.node = node;
      const { name, place, rows } = this.tell(node);
      this.element.replaceChildren(
        make("strong", {}, name), make("span", { class: "muted" }, place), facts(rows));
    }
    this.element.hidden = false;
    const { offsetWidth, offsetHeight } = this.element;
    const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
    const below = y + 16 + offsetHeight < high;
    this.element.style.left = `${Math.max(4, Math.min(x + 12, wide - offsetWidth - 8))}px`;
    this.element.style.top = `${Math.max(4, below ? y + 16 : y - offsetHeight - 28)}px`;
  }

  hide() {
    this.node = null;
    this.element.hidden = true;
  }
}

function facts(rows) {
  return make("dl", {}, ...rows.flatMap(([what, value]) =>
    [make("dt", {}, what), make("dd", {}, value)]));
}
