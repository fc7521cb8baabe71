mountTrace(JSON.parse(document.getElementById("data").textContent));
