// The picture: boxes that can be clicked, focused and read aloud, as many as can be seen.

const ROW = 22;
const NARROWEST = 0.5;
const MOST_BOXES = 3000;
const LABELLED = 28;

/** Lay out what lies under `zoomed`, and its callers at full width; iterative, stacks are deep. */
function laidOut(tree, zoomed, width) {
  const boxes = [];
  for (let node = zoomed.parent; node; node = node.parent) boxes.unshift(box(node, 0, width, true));
  const todo = [[zoomed, 0]];
  const unit = width / (zoomed.span || 1);
  while (todo.length) {
    const [node, x] = todo.pop();
    boxes.push(box(node, x, node.span * unit, false));
    const seen = [];
    let start = x;
    for (const kid of tree.kids(node)) {
      if (kid.span * unit >= NARROWEST) seen.push([kid, start]);
      start += kid.span * unit;
    }
    todo.push(...seen.reverse());
  }
  return widest(boxes);
}

function box(node, x, width, above) {
  return { node, x, width, above, element: null };
}

/** Leave out the narrowest where there are more boxes than a page can hold with ease. */
function widest(boxes) {
  if (boxes.length <= MOST_BOXES) return boxes;
  const order = boxes.map((_, index) => index);
  order.sort((one, other) => boxes[other].width - boxes[one].width); // stable: callers come first
  return order.slice(0, MOST_BOXES).sort((one, other) => one - other).map((index) => boxes[index]);
}

class Chart {
  /** `flame` says what is shown, what a box is called, and hears what is done with it. */
  constructor(flame) {
    this.flame = flame;
    this.boxes = [];
    this.byElement = new Map();
    this.current = null;
    this.element = make("div", { class: "chart", role: "tree", "aria-label": flame.title });
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("pointermove", (event) => this.pointed(event));
    this.element.addEventListener("pointerleave", () => flame.tip.hide());
    this.element.addEventListener("focusin", (event) => this.focused(event));
    this.element.addEventListener("focusout", (event) => this.left(event));
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  resized() {
    if (this.element.clientWidth !== this.width) this.draw();
  }

  draw() {
    this.width = this.element.clientWidth;
    if (!this.width) return;
    const held = this.element.contains(document.activeElement);
    const { tree, zoomed } = this.flame;
    this.boxes = laidOut(tree, zoomed, this.width);
    this.byElement.clear();
    const rows = 1 + this.boxes.reduce((most, each) => Math.max(most, each.node.level), 0);
    this.element.style.height = `${rows * ROW}px`;
    this.element.replaceChildren(...this.boxes.map((each) => this.made(each, rows)));
    this.mark();
    const again = this.boxes.find((each) => each.node === this.current?.node);
    this.hold(again ?? this.boxes.find((each) => each.node === zoomed), held);
  }

  made(each, rows) {
    const { node, x, width } = each;
    const row = this.flame.icicle ? node.level : rows - 1 - node.level;
    const element = make("div", {
      role: "treeitem", tabindex: "-1", "aria-level": String(node.level + 1),
      "aria-label": this.flame.words.aloud(node), class: `box ${this.flame.words.colour(node)}`,
    });
    if (each.above) element.classList.add("above");
    element.style.left = `${x}px`;
    element.style.top = `${row * ROW}px`;
    // A hair between neighbours, except where the hair would be all that is left.
    element.style.width = `${width > 3 ? width - 1 : width}px`;
    if (width >= LABELLED) element.append(...this.flame.words.label(node));
    each.element = element;
    this.byElement.set(element, each);
    return element;
  }

  /** Show what is searched for and which kind of work is looked at. */
  mark() {
    for (const { element, node } of this.boxes) {
      element.classList.toggle("match", this.flame.isMatch(node));
      element.classList.toggle("faint", this.flame.isFaint(node));
    }
  }

  get matches() {
    return this.boxes.filter(({ node }) => node.frame >= 0 && this.flame.isMatch(node));
  }

  /** Show one box without taking the focus from where it is. */
  point(each) {
    for (const { element } of this.boxes) element.classList.toggle("pointed", element === each.element);
    this.hold(each, false);
    this.describe(each);
  }

  describe({ element, node }) {
    const place = element.getBoundingClientRect();
    element.setAttribute("aria-describedby", this.flame.tip.element.id);
    this.flame.tip.at(node, Math.max(place.left, 0), place.bottom - 8);
  }

  /** Make one box the one that Tab leads to, and move the focus there where it is ours. */
  hold(each, focus) {
    if (!each) return;
    this.current?.element.setAttribute("tabindex", "-1");
    this.current = each;
    each.element.setAttribute("tabindex", "0");
    if (focus) each.element.focus();
  }

  clicked(event) {
    const each = this.byElement.get(event.target.closest(".box"));
    if (!each) return;
    this.hold(each, true);
    this.flame.zoom(each.node);
  }

  pointed(event) {
    const each = this.byElement.get(event.target.closest(".box"));
    if (each) this.flame.tip.at(each.node, event.clientX, event.clientY);
    else this.flame.tip.hide();
  }

  focused(event) {
    const each = this.byElement.get(event.target);
    if (!each) return;
    this.hold(each, false);
    if (event.target.matches(":focus-visible")) this.describe(each);
  }

  left(event) {
    event.target.removeAttribute("aria-describedby");
    this.flame.tip.hide();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.current) return;
    const act = this.keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  get keys() {
    const { flame } = this;
    const outer = () => this.move(this.current.node.parent);
    const inner = () => this.inner();
    const enter = () => flame.zoom(this.current.node);
    const back = () => flame.zoom(flame.zoomed.parent ?? flame.zoomed);
    return {
      ArrowUp: flame.icicle ? outer : inner,
      ArrowDown: flame.icicle ? inner : outer,
      ArrowLeft: () => this.beside(-1),
      ArrowRight: () => this.beside(1),
      Enter: enter,
      " ": enter,
      Escape: back,
      Backspace: back,
      Home: () => flame.zoom(flame.tree.root),
    };
  }

  move(node) {
    this.hold(this.boxes.find((each) => each.node === node), true);
  }

  inner() {
    const kids = this.boxes.filter((each) => each.node.parent === this.current.node);
    kids.sort((one, other) => other.width - one.width);
    if (kids.length) this.hold(kids[0], true);
  }

  beside(step) {
    const row = this.boxes.filter(({ node }) => node.level === this.current.node.level);
    const next = row[row.findIndex((each) => each.node === this.current.node) + step];
    if (next) this.hold(next, true);
  }
}
