package kubewright_test

// The README shows what is in ../example, to the letter; `go test` runs that.

import (
	"os"
	"strings"
	"testing"
)

func TestReadmeShowsTheExamples(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, block := range strings.Split(string(readme), "\n```go\n")[1:] {
		code, _, closed := strings.Cut(block, "```")
		if !closed {
			t.Fatal("a block of the README does not end")
		}
		shown = append(shown, code)
	}
	examples := []string{"../example/deployment_test.go", "../example/definition_test.go"}
	if len(shown) != len(examples) {
		t.Fatalf("the README shows %d programs, and there are %d examples", len(shown), len(examples))
	}
	for i, path := range examples {
		example, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(example) != shown[i] {
			t.Errorf("the README does not show %s as it is", path)
		}
	}
}
