// Code examples: a copy button on each, and tabs for adjacent examples in different languages.
"use strict";

const LANGUAGES = { python: "Python", ts: "TypeScript", js: "JavaScript", sh: "Shell", json: "JSON" };

function language(block) {
  const name = /(?:^| )highlight-(\w+)/.exec(block?.className ?? "")?.[1];
  return LANGUAGES[name];
}

function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", () => action(made));
  return made;
}

async function copy(block, pressed) {
  const code = block.querySelector("pre");
  try {
    await navigator.clipboard.writeText(code.textContent);
    pressed.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    pressed.textContent = "Selected";
  }
  setTimeout(() => (pressed.textContent = "Copy"), 2000);
}

/** Shows the examples in a language, in every group that has it. */
function choose(name) {
  for (const tabs of document.querySelectorAll(".code-tabs")) {
    const pressed = [...tabs.children];
    if (!pressed.some((tab) => tab.textContent === name)) continue;
    for (const tab of pressed) {
      tab.setAttribute("aria-pressed", String(tab.textContent === name));
      tab.block.hidden = tab.textContent !== name;
    }
  }
}

const blocks = [...document.querySelectorAll("div[class*=highlight-]")];
for (const block of blocks) {
  const bar = document.createElement("div");
  bar.className = "code-copy";
  bar.append(button("Copy", (pressed) => copy(block, pressed)));
  block.prepend(bar);
}
for (const first of blocks) {
  if (first.hidden || language(first.previousElementSibling)) continue;
  const group = [];
  for (let block = first; language(block); block = block.nextElementSibling) group.push(block);
  if (new Set(group.map(language)).size < Math.max(2, group.length)) continue;
  const tabs = document.createElement("div");
  tabs.className = "code-tabs";
  for (const block of group) {
    const tab = button(language(block), (pressed) => choose(pressed.textContent));
    tab.block = block;
    tabs.append(tab);
  }
  first.before(tabs);
  choose(language(first));
}
