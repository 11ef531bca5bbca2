// As much of a document as elements need that no browser shows.

class Part {
  constructor(name) {
    Object.assign(this, { name, attributes: {}, listeners: {}, children: [], dataset: {}, value: "" });
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  addEventListener(name, act) {
    this.listeners[name] = act;
  }

  append(...children) {
    this.children.push(...children);
  }

  replaceChildren(...children) {
    this.children = children;
  }

  get textContent() {
    return this.children.map((child) => child.textContent ?? child).join("");
  }
}

globalThis.document = { createElement: (name) => new Part(name) };

/** Return the elements of a kind among some children, at any depth. */
export function all(kind, children) {
  const parts = [children].flat(Infinity).filter((child) => child instanceof Part);
  return parts.flatMap((part) => [...(part.name === kind ? [part] : []), ...all(kind, part.children)]);
}
