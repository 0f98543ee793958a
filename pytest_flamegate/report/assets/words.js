// What a box says: in the picture, beside the pointer, and to a screen reader.

const LOUD = ["new", "vanished"];
// An exact change has no noise (difference.py).
const ENDLESS = 1e6;

class Words {
  constructor(flame) {
    this.flame = flame;
    this.data = flame.data;
    this.unit = this.data.unit.replace(/s$/, "");
  }

  get rate() { return this.flame.tree.paths.rate; }

  name({ frame }) {
    return frame < 0 ? "all" : this.data.names[this.data.frames.name[frame]];
  }

  /** Return file or library. */
  module({ frame }) {
    return frame < 0 ? "" : this.data.modules[this.data.frames.module[frame]] || "module unknown";
  }

  /** Return file or library, and kind of work where it is one; of a line its text, if shown. */
  place(node) {
    const code = this.flame.code(node);
    if (code) return `${this.module(node)} · ${code}`;
    const [kind] = this.data.categories[this.data.frames.category[node.frame]] ?? [];
    return [this.module(node), kind].filter(Boolean).join(" · ");
  }

  share(samples) { return figures.share(samples / this.data.total); }

  shareBefore(samples) { return figures.share(samples / this.data.difference.total); }

  cost(samples) { return figures.seconds(this.data.cost * samples / this.data.total); }

  /** Return what samples of one side are worth in the measure of the difference. */
  worth(value) {
    const { measure } = this.data.difference;
    if (measure === "cost") return figures.seconds(value);
    return measure === "count" ? figures.count(Math.round(value)) : figures.share(value);
  }

  change(now, before) {
    const value = now * this.rate.now - before * this.rate.before;
    const sign = value > 0 ? "+" : value < 0 ? "−" : "±";
    return sign + (this.data.difference.measure === "share"
      ? `${(100 * Math.abs(value)).toFixed(1)} pp` : this.worth(Math.abs(value)));
  }

  /** Return what the box shows: name and figure. */
  label(node) {
    const mark = this.flame.compared && this.isLoud(node) && this.state(node);
    // In a comparison it is the number that the colour, the table and the SVG show.
    const figure = !this.flame.compared ? this.share(node.now)
      : this.isChanged(node) ? this.change(...this.own(node)) : "";
    const code = this.flame.code(node);
    return [...(mark ? [make("b", {}, `${mark} `)] : []), this.name(node),
      ...(figure ? [make("span", { class: "figure" }, figure)] : []), ...(code ? [make("code", {}, code)] : [])];
  }

  aloud(node) {
    const parts = [this.name(node), this.module(node)];
    if (this.flame.compared) {
      if (node.frame >= 0) parts.push(this.state(node), `${this.change(...this.own(node))} itself`);
      parts.push(`${this.change(node.now, node.before)} with all it calls`);
    } else {
      parts.push(`${this.share(node.now)} of ${this.unit}s`);
      if (this.data.cost) parts.push(`${this.cost(node.now)} per token`);
    }
    return parts.filter(Boolean).join(", ");
  }

  /** Return name, place and rows of the tip. */
  told(node) {
    const rows = this.flame.compared ? this.comparedRows(node) : this.plainRows(node);
    return { name: this.name(node), place: this.place(node), rows };
  }

  plainRows(node) {
    const { total, cost, functions, frames } = this.data;
    const each = (samples) => (cost ? ` · ${this.cost(samples)}/token` : "");
    const rows = [
      [`${this.unit}s`, figures.count(node.now)],
      ["of all", `${this.share(node.now)}${each(node.now)}`],
    ];
    if (node.parent?.parent) {
      const whose = this.flame.inverted ? "of what it calls" : "of its caller";
      rows.push([whose, figures.share(node.now / node.parent.now)]);
    }
    if (node.frame < 0) return rows;
    const own = this.flame.inverted ? functions.own[frames.name[node.frame]] : node.own;
    rows.push(["itself", `${this.share(own)}${each(own)}`]);
    const all = functions.all[frames.name[node.frame]];
    if (all && all !== node.now) rows.push(["on all paths", `${figures.share(all / total)}${each(all)}`]);
    return rows;
  }

  comparedRows(node) {
    const { difference } = this.data;
    const sides = (now, before) =>
      `${this.worth(before * this.rate.before)} → ${this.worth(now * this.rate.now)} ` +
      `(${this.change(now, before)})`;
    const shares = (now, before) => `${this.shareBefore(before)} → ${this.share(now)} ` +
      `(${figures.signed(100 * (now / this.data.total - before / difference.total),
        (pp) => pp.toFixed(1).replace("-", "−"))} pp)`;
    const rows = [[this.measured(), sides(node.now, node.before)],
      ["share", shares(node.now, node.before)]];
    if (node.frame < 0) return rows;
    const [own, before] = this.own(node);
    rows.push(["itself", sides(own, before)]);
    // Upside down a caller stands for what it calls, whose part through it has no z.
    const z = this.flame.inverted
      ? node.level === 1 && difference.functions.z[this.data.frames.name[node.frame]] : node.z;
    if (z !== false && Math.abs(z) < ENDLESS) {
      rows.push(["z", `${z.toFixed(1).replace("-", "−")} (certain from ${difference.certain.toFixed(1)})`]);
    }
    rows.push(["own cost", this.state(node)]);
    return rows;
  }

  measured() {
    return { cost: "cost per token", count: "instructions", share: "share" }[
      this.data.difference.measure];
  }

  /** Return now and before of what the box itself costs: upside down and of the whole, all. */
  own(node) {
    return this.flame.inverted || node.frame < 0 ? [node.now, node.before] : [node.own, node.ownBefore];
  }

  colour(node) {
    if (node.frame < 0) return "tone-floor";
    if (!this.flame.compared) {
      return `tone-${this.data.categories[this.data.frames.category[node.frame]][1]}`;
    }
    return `change-${this.changed(node)}`;
  }

  /** Return the class of a box by its own change, as in the SVG. */
  changed(node) {
    const { kinds, steps } = this.data.difference;
    const state = kinds[node.state];
    if (state === "unchanged") return this.data.difference.shade[node.at] ?? "same";
    if (LOUD.includes(state)) return state === "new" ? "more" : "less";
    const [now, before] = this.own(node);
    const whole = Math.max(this.data.total * this.rate.now,
      this.data.difference.total * this.rate.before);
    const part = Math.abs(now * this.rate.now - before * this.rate.before) / whole;
    return state + (1 + steps.filter((step) => part >= step).length);
  }

  state(node) { return this.data.difference.states[node.state]; }

  /** Return whether its own cost certainly changed; of the floor, which is the whole, always. */
  isChanged(node) {
    return node.frame < 0 || this.data.difference.kinds[node.state] !== "unchanged";
  }

  isLoud(node) { return LOUD.includes(this.data.difference.kinds[node.state]); }
}
