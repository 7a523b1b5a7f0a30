// SPDX-License-Identifier: Apache-2.0

package yamltree_test

import (
	"testing"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// TestRead checks a tree with all kinds of nodes, and the positions of its values.
func TestRead(t *testing.T) {
	doc, mistakes := yamltree.Read([]byte("ö: {from: [2001:db8::1, no]}\nb:\nc: &a [0x10]\nd: *a\n"))
	if len(mistakes) > 0 {
		t.Fatalf("mistakes: %v", mistakes[0])
	}
	from := doc.Get("ö").Get("from").Words()
	if len(from) != 2 || from[0].Text != "2001:db8::1" || from[0].Pos != (yamltree.Pos{Line: 1, Col: 12}) || from[1].Text != "no" {
		t.Errorf("from is %v", from)
	}
	if b := doc.Get("b"); b.Kind != yamltree.Nothing || !b.Whole() {
		t.Errorf("b is %s", b)
	}
	if d := doc.Get("d"); d != doc.Get("c") || d.Kind != yamltree.List || d.Items[0].Text != "0x10" {
		t.Errorf("d is %s", d)
	}
}

// TestMistakes checks the position and message of the mistake in each rejected file.
func TestMistakes(t *testing.T) {
	for src, want := range map[string]yamltree.Mistake{
		"":                  {Pos: yamltree.Pos{Line: 1, Col: 1}, Msg: "the policy is empty"},
		"a: \xff":           {Pos: yamltree.Pos{Line: 1, Col: 4}, Msg: "byte 0xff is not UTF-8"},
		"a: !x 1":           {Pos: yamltree.Pos{Line: 1, Col: 4}, Msg: `YAML tags are not supported, got "!x"`},
		"a: 1\n---\nb: 2\n": {Pos: yamltree.Pos{Line: 3, Col: 1}, Msg: "a policy is one YAML document, and here begins another"},
		"a: [1\nb: 2\n":     {Pos: yamltree.Pos{Line: 2, Col: 1}, Msg: "YAML: the list that [ opens in line 1 is not closed"},
	} {
		_, mistakes := yamltree.Read([]byte(src))
		if len(mistakes) != 1 || mistakes[0].Pos != want.Pos || mistakes[0].Msg != want.Msg || mistakes[0].Hint == "" {
			t.Errorf("%q:", src)
			for _, m := range mistakes {
				t.Errorf("\t%+v, want %+v", *m, want)
			}
		}
	}
}
