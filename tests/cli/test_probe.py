from tests.cli.conftest import PROMPT


def test_probe(specgen, models):
    for name in ["ending", "bold", "escaping", "c1", "newline"]:
        r = specgen.run(getattr(models, name), PROMPT, "-n", 8)
        print(name, r.code, r.out, r.err.decode())
    r = specgen.run(models.target, PROMPT, "-n", 200, "--draft", models.draft, "--json")
    print(r.json["stats"])
