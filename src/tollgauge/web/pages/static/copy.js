// Adds a button to every snippet that copies its text. Where the browser does not let pages copy
// (without https, for example), it selects the text instead.
"use strict";

const said = document.getElementById("copied");

for (const snippet of document.querySelectorAll("figure.snippet")) {
  const code = snippet.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain-button copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    let words = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      window.getSelection().selectAllChildren(code);
      words = "Selected";
    }
    button.textContent = words;
    said.textContent = words;
    setTimeout(() => {
      button.textContent = "Copy";
      said.textContent = "";
    }, 2000);
  });
  snippet.querySelector("figcaption").append(button);
}
