"use strict";
// All pages: the embedded data, and how it reaches the page.

const find = (id) => document.getElementById(id);
const data = JSON.parse(find("data").textContent);

const counted = (number, thing, things = `${thing}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? thing : things}`;

/** An element with text, classes and children; the only way in which data reaches the page. */
function make(tag, { text, classes, ...rest } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (classes) element.className = classes;
  for (const [name, value] of Object.entries(rest)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Saves a text as a file of the reader. */
function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
