// A small menu where the user clicked: what can be done to this message or this node.
import { $, button, make } from "./shared.js";

export function openMenu(event, title, choices) {
  const menu = $("menu");
  const back = document.activeElement;
  const close = () => {
    menu.hidden = true;
    back?.focus?.();
  };
  menu.replaceChildren(
    make("b", { textContent: title }),
    ...choices.map(([text, title, act]) => button(text, title, () => (close(), act()))),
  );
  menu.hidden = false;
  menu.style.left = `${Math.min(event.pageX, document.documentElement.clientWidth - menu.offsetWidth - 8)}px`;
  menu.style.top = `${event.pageY + 6}px`;
  menu.querySelector("button")?.focus({ preventScroll: true });
  menu.onkeydown = (pressed) => {
    const all = [...menu.querySelectorAll("button")];
    const at = all.indexOf(document.activeElement);
    if (pressed.key === "Escape") close();
    else if (pressed.key === "ArrowDown") all[(at + 1) % all.length].focus();
    else if (pressed.key === "ArrowUp") all[(at - 1 + all.length) % all.length].focus();
    else return;
    pressed.preventDefault();
    pressed.stopPropagation();
  };
}

$("menu").addEventListener("focusout", (event) => {
  if (event.relatedTarget && !$("menu").contains(event.relatedTarget)) $("menu").hidden = true;
});

document.addEventListener("pointerdown", (event) => {
  const menu = $("menu");
  if (!menu.hidden && !menu.contains(event.target)) menu.hidden = true;
});
