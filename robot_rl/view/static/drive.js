// Keys and a gamepad drive the robot of robot-rl play. They write shares of the command's ranges into a field of the
// page, which sends them like every other input, and press the page's buttons.
(() => {
  if (window.isDriven) return;
  window.isDriven = true;
  const KEYS = {
    KeyW: [0, 1], ArrowUp: [0, 1], KeyS: [0, -1], ArrowDown: [0, -1], KeyA: [1, 1], KeyD: [1, -1],
    KeyQ: [2, 1], ArrowLeft: [2, 1], KeyE: [2, -1], ArrowRight: [2, -1],
  };
  const PRESSES = { KeyR: "Reset", Space: "Pause" };
  const PAD = { 8: "Reset", 9: "Pause" }; // Back and Start, by the numbers of the standard layout.
  const STICKS = [1, 0, 2]; // Left stick forward and sideways, right stick turns; all axes are negative that way.
  const held = new Set();
  const down = new Set();
  let sent = "0 0 0";

  const press = (name) => [...document.querySelectorAll("button")].find((b) => b.textContent === name)?.click();

  function field() {
    let node = [...document.querySelectorAll("label")].find((label) => label.textContent === "Keys");
    while (node && !node.querySelector("input")) node = node.parentElement;
    if (node) node.style.display = "none";
    return node?.querySelector("input");
  }

  function send() {
    const shares = [0, 0, 0];
    for (const key of held) shares[KEYS[key][0]] += KEYS[key][1];
    for (const pad of navigator.getGamepads?.() ?? []) {
      STICKS.forEach((axis, i) => (shares[i] -= Math.abs(pad?.axes[axis] ?? 0) > 0.1 ? pad.axes[axis] : 0));
      for (const [number, name] of pad ? Object.entries(PAD) : []) {
        const id = `${pad.index} ${number}`;
        if (!pad.buttons[number]?.pressed) down.delete(id);
        else if (!down.has(id)) down.add(id) && press(name);
      }
    }
    const text = shares.map((share) => +Math.max(-1, Math.min(1, share)).toFixed(2)).join(" ");
    const input = field();
    if (!input || text === sent) return;
    sent = text;
    // React overrides the setter of its inputs.
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, text);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function onKey(event) {
    const { code, target, type } = event;
    if (type === "keyup" && held.delete(code)) send();
    const isTyped = target.closest?.("input, textarea, select, [role=slider], [contenteditable]");
    const isPressed = code === "Space" && target.closest?.("button");
    const known = code in PRESSES || (code in KEYS && field());
    if (!known || isTyped || isPressed || event.ctrlKey || event.metaKey || event.altKey) return;
    // The page would also move its camera.
    event.stopImmediatePropagation();
    event.preventDefault();
    if (type !== "keydown" || event.repeat) return;
    if (code in PRESSES) press(PRESSES[code]);
    else held.add(code) && send();
  }

  for (const kind of ["keydown", "keyup"]) window.addEventListener(kind, onKey, true);
  window.addEventListener("blur", () => { held.clear(); send(); });
  setInterval(send, 50);
})();
