// What a box says: in the picture, beside the pointer, and to a screen reader.

const [UNCHANGED, UP, , NEW, VANISHED] = [0, 1, 2, 3, 4];
const MARKS = { [NEW]: "new", [VANISHED]: "gone" };
const STATES = ["unchanged", "costs more", "costs less", "new", "gone"];
const STEPS = 4;

class Words {
  constructor(flame) {
    this.flame = flame;
    this.data = flame.data;
    this.unit = this.data.unit === "instructions" ? "instruction" : "sample";
    this.largest = this.largestChange();
  }

  get rate() { return this.flame.tree.paths.rate; }

  name({ frame }) {
    return frame < 0 ? "all" : this.data.names[this.data.frames.name[frame]];
  }

  /** Return file or library, and kind of work. */
  place({ frame }) {
    if (frame < 0) return "";
    const module = this.data.modules[this.data.frames.module[frame]] || "module unknown";
    return `${module} · ${this.data.categories[this.data.frames.category[frame]][0]}`;
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
    const mark = this.flame.compared && MARKS[node.state];
    const figure = this.flame.compared
      ? this.change(node.now, node.before) : this.share(node.now);
    return [...(mark ? [make("b", {}, `${mark} `)] : []), this.name(node),
      make("span", { class: "figure" }, figure)];
  }

  aloud(node) {
    const parts = [this.name(node), this.place(node).split(" · ")[0]];
    if (this.flame.compared) {
      parts.push(STATES[node.state], `${this.change(node.now, node.before)} with all it calls`);
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
    if (all !== node.now) rows.push(["on all paths", `${figures.share(all / total)}${each(all)}`]);
    return rows;
  }

  comparedRows(node) {
    const { difference } = this.data;
    const sides = (now, before) =>
      `${this.worth(before * this.rate.before)} → ${this.worth(now * this.rate.now)} ` +
      `(${this.change(now, before)})`;
    const shares = (now, before) => `${this.shareBefore(before)} → ${this.share(now)} ` +
      `(${figures.signed(100 * (now / this.data.total - before / difference.total),
        (pp) => pp.toFixed(1))} pp)`;
    const rows = [[this.measured(), sides(node.now, node.before)],
      ["share", shares(node.now, node.before)]];
    if (node.frame < 0) return rows;
    const [own, before] = this.own(node);
    rows.push(["itself", sides(own, before)]);
    const z = this.flame.inverted
      ? difference.functions.z[this.data.frames.name[node.frame]] : node.z;
    rows.push(["z", `${z.toFixed(1)} (certain from ${difference.certain.toFixed(1)})`]);
    rows.push(["", STATES[node.state]]);
    return rows;
  }

  measured() {
    return { cost: "per token", count: "instructions", share: "share" }[
      this.data.difference.measure];
  }

  /** Return now and before of what the box itself costs: upside down, all of it is. */
  own(node) {
    return this.flame.inverted ? [node.now, node.before] : [node.own, node.ownBefore];
  }

  colour(node) {
    if (node.frame < 0) return "tone-floor";
    if (!this.flame.compared) {
      return `tone-${this.data.categories[this.data.frames.category[node.frame]][1]}`;
    }
    if (node.state === UNCHANGED) return "change-unchanged";
    const [now, before] = this.own(node);
    const size = Math.abs(now * this.rate.now - before * this.rate.before) / this.largest;
    const step = Math.max(1, Math.ceil(STEPS * Math.min(size, 1)));
    return `change-${node.state === UP || node.state === NEW ? "up" : "down"}-${step}`;
  }

  /** Return the largest change of any function, against which colours are as strong as they are. */
  largestChange() {
    const { difference, functions } = this.data;
    if (!difference) return 1;
    const rate = rates(this.data);
    const sizes = functions.own.map((now, i) =>
      Math.abs(now * rate.now - difference.functions.own[i] * rate.before));
    return sizes.reduce((most, size) => Math.max(most, size), 0) || 1;
  }
}
