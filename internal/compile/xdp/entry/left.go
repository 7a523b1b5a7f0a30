// SPDX-License-Identifier: Apache-2.0

package entry

import "slices"

// index finds the rules that sources of a class may match, without a test of each rule. This is necessary because a policy may have as many classes
// as rules.
type index struct {
	rules  []rule
	others []int         // the rules that may match sources of every class
	held   map[int][]int // for each expression, the rules whose first test is this expression
}

func newIndex(rules []rule) *index {
	x := &index{rules: rules, held: map[int][]int{}}
	for i := range rules {
		at := slices.IndexFunc(rules[i].static, func(t staticTest) bool { return !t.not && t.or == 0 })
		if at < 0 {
			x.others = append(x.others, i)
			continue
		}
		expr := rules[i].static[at].expr
		x.held[expr] = append(x.held[expr], i)
	}
	return x
}

// left returns the rules that remain for a source of a class, in order. It ends with the first rule that matches every packet.
func (x *index) left(s *section, class int) (left []rule) {
	numbers := slices.Clone(x.others)
	for _, expr := range s.Classes.Held(class) {
		numbers = append(numbers, x.held[expr]...)
	}
	slices.Sort(numbers)
	for _, i := range numbers {
		r, ok := s.reduce(x.rules[i], class)
		if !ok {
			continue
		}
		left = append(left, r)
		if r.always() {
			break
		}
	}
	return left
}
