// The data as two trees: from the outermost caller inwards, and from what runs outwards.
// Boxes are made when they are first asked for: most are too narrow ever to be.

/** Paths in preorder with what lies under each; `compared` counts both sides of a difference. */
class Paths {
  constructor(data, compared) {
    const { depth, frame, own } = data.paths;
    this.data = data;
    this.compared = compared;
    this.frame = frame;
    this.own = own;
    this.ownBefore = data.difference?.before ?? new Uint8Array(own.length);
    this.state = data.difference?.state ?? new Uint8Array(own.length);
    this.parent = parents(depth);
    this.end = ends(depth);
    this.now = this.summed(own);
    this.before = this.summed(this.ownBefore);
    this.rate = rates(data);
    // Wide enough for either side, so that what is new and what is gone both have room.
    this.span = compared ? this.summed(own.map((_, i) => this.wide(i))) : this.now;
  }

  get size() { return this.frame.length; }

  /** Return the width of a path's own cost: of the dearer side's where it changed, else the mean. */
  wide(i) {
    const sides = [this.own[i] * this.rate.now, this.ownBefore[i] * this.rate.before];
    return this.state[i] ? Math.max(...sides) : (sides[0] + sides[1]) / 2;
  }

  summed(own) {
    const sums = Float64Array.from(own);
    for (let i = sums.length - 1; i >= 0; i--) {
      if (this.parent[i] >= 0) sums[this.parent[i]] += sums[i];
    }
    return sums;
  }

  /** Return the sum over all stacks that hold a frame of `wanted`, each counted once. */
  matched(wanted, counts) {
    let sum = 0;
    for (let i = 0; i < this.size;) {
      const hit = wanted[this.frame[i]];
      if (hit) sum += counts[i];
      i = hit ? this.end[i] : i + 1;
    }
    return sum;
  }
}

function parents(depth) {
  const found = new Int32Array(depth.length);
  const open = [];
  depth.forEach((level, i) => {
    found[i] = level ? open[level - 1] : -1;
    open[level] = i;
  });
  return found;
}

/** Return for each path the first one after it that does not lie under it. */
function ends(depth) {
  const found = new Int32Array(depth.length).fill(depth.length);
  const open = [];
  depth.forEach((level, i) => {
    while (open.length > level) found[open.pop()] = i;
    open.push(i);
  });
  return found;
}

/** Return what one sample is worth on either side, in the measure of the difference. */
function rates({ cost, total, difference }) {
  const worth = (seconds, samples) => {
    if (difference?.measure === "count") return 1;
    return (difference?.measure !== "share" && seconds ? seconds : 1) / samples;
  };
  // In a difference both costs are told on one clock, which need not be the profile's own.
  return difference
    ? { now: worth(difference.now, total), before: worth(difference.cost, difference.total) }
    : { now: worth(cost, total), before: 0 };
}

function whole(paths, more) {
  const sum = (counts) => {
    let all = 0;
    for (let i = 0; i < paths.size; i = paths.end[i]) all += counts[i];
    return all;
  };
  const [now, before] = [paths.data.total, paths.data.difference?.total ?? 0];
  return {
    frame: -1, level: 0, parent: null, kids: null, now, own: 0, before, ownBefore: 0,
    span: paths.compared ? sum(paths.span) : now, state: 0, z: null, ...more,
  };
}

/** Callers above what they call. */
class Outward {
  constructor(paths) {
    this.paths = paths;
    this.root = whole(paths, { at: -1 });
  }

  kids(node) {
    node.kids ??= [...this.below(node.at)].map((at) => this.node(at, node));
    return node.kids;
  }

  * below(at) {
    const last = at < 0 ? this.paths.size : this.paths.end[at];
    for (let i = at + 1; i < last; i = this.paths.end[i]) yield i;
  }

  node(at, parent) {
    const { paths } = this;
    return {
      frame: paths.frame[at], level: parent.level + 1, parent, kids: null, at,
      now: paths.now[at], own: paths.own[at], span: paths.span[at],
      before: paths.before[at], ownBefore: paths.ownBefore[at],
      state: paths.state[at], z: paths.data.difference?.z[at] ?? null,
    };
  }
}

/** What runs first, and above it who called it: every path that costs something, from its end. */
class Inverted {
  constructor(paths) {
    this.paths = paths;
    const leaves = [];
    for (let i = 0; i < paths.size; i++) {
      if (paths.own[i] || paths.compared && paths.ownBefore[i]) leaves.push([i, i]);
    }
    this.root = whole(paths, { ends: leaves });
  }

  kids(node) {
    node.kids ??= this.grouped(node);
    return node.kids;
  }

  grouped(node) {
    const { paths } = this;
    const found = new Map();
    for (const [leaf, at] of node.ends) {
      const up = node.level ? paths.parent[at] : at;
      if (up < 0) continue;
      const frame = paths.frame[up];
      if (!found.has(frame)) found.set(frame, this.empty(frame, node));
      this.add(found.get(frame), leaf, up);
    }
    return [...found.values()].sort((one, other) => other.span - one.span);
  }

  empty(frame, parent) {
    return {
      frame, level: parent.level + 1, parent, kids: null, ends: [], now: 0, own: 0, before: 0,
      ownBefore: 0, span: 0, state: 0, z: null, moved: 0,
    };
  }

  add(node, leaf, at) {
    const { paths } = this;
    const [now, before] = [paths.own[leaf], paths.ownBefore[leaf]];
    const change = Math.abs(now * paths.rate.now - before * paths.rate.before);
    node.ends.push([leaf, at]);
    node.now += now;
    node.before += before;
    node.span += paths.compared ? paths.wide(leaf) : now;
    if (node.level === 1) {
      node.own += now;
      node.ownBefore += before;
    }
    // It is coloured as the path is that changed most.
    if (paths.state[leaf] && change > node.moved) {
      node.moved = change;
      node.state = paths.state[leaf];
    }
  }
}
