// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// An expression is the static part of an address match. It holds if the address is in any of some static sets. Rules with the same static part share
// an expression. If each expression has the same result for two addresses, the policy cannot distinguish them. Such addresses form a class.
type expression struct {
	sets []int // indices in Program.Sets of static sets
}

// addresses has the address expressions of a program, and the table that maps each address to its class.
type addresses struct {
	exprs   []expression
	number  map[string]int // maps the text of an expression's sets to its number
	table   *addrs.Table
	truth   [][]uint64 // for each class, a bit for each expression: whether it holds
	dynamic map[int]int

	srcClass, dstClass     bool   // whether any rule needs the class of the address
	srcDynamic, dstDynamic uint32 // the dynamic sets that rules test for the address, a bit each
	localSet               uint32
}

func compileAddresses(p *ir.Program, dynamic map[int]int) (*addresses, error) {
	a := &addresses{number: map[string]int{}, dynamic: dynamic, localSet: localSet(p, dynamic)}
	for _, r := range p.Rules {
		for _, m := range r.Src {
			a.srcClass = a.add(m) || a.srcClass
			a.srcDynamic |= a.dynamicBits(m)
		}
		for _, m := range r.Dst {
			a.dstClass = a.add(m) || a.dstClass
			a.dstDynamic |= a.dynamicBits(m)
		}
	}
	return a, a.classify(p)
}

// split returns the static and the dynamic sets of a match.
func (a *addresses) split(m ir.AddrMatch) (static, dynamic []int) {
	for _, s := range m.Sets {
		if _, ok := a.dynamic[s]; ok {
			dynamic = append(dynamic, s)
		} else {
			static = append(static, s)
		}
	}
	return static, dynamic
}

// add registers the expression of a match. It reports whether the match has one.
func (a *addresses) add(m ir.AddrMatch) bool {
	static, _ := a.split(m)
	if len(static) == 0 {
		return false
	}
	key := fmt.Sprint(static)
	if _, ok := a.number[key]; !ok {
		a.number[key] = len(a.exprs)
		a.exprs = append(a.exprs, expression{static})
	}
	return true
}

// Expr returns the number of the expression of a match, or -1 if the match has none.
func (a *addresses) Expr(m ir.AddrMatch) int {
	static, _ := a.split(m)
	if len(static) == 0 {
		return -1
	}
	return a.number[fmt.Sprint(static)]
}

// dynamicBits returns the dynamic sets of a match, a bit each.
func (a *addresses) dynamicBits(m ir.AddrMatch) uint32 {
	_, dynamic := a.split(m)
	var bits uint32
	for _, s := range dynamic {
		bits |= 1 << a.dynamic[s]
	}
	return bits
}

// classify builds the table of classes. Sets that occur in the same expressions become one set of the table. So lists that a policy treats alike cost
// as much as one list.
func (a *addresses) classify(p *ir.Program) error {
	users := map[int][]int{} // maps a set to the expressions that contain it
	for i, e := range a.exprs {
		for _, s := range e.sets {
			users[s] = append(users[s], i)
		}
	}
	groups := map[string][]int{}
	var order []string
	for s := range p.Sets {
		if users[s] == nil {
			continue
		}
		key := fmt.Sprint(users[s])
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], s)
	}
	var united []*addrs.Set
	var exprs [][]int // the expressions of each united set
	for _, key := range order {
		var all []*addrs.Set
		for _, s := range groups[key] {
			all = append(all, p.Sets[s].Static)
		}
		united = append(united, addrs.Union(all...))
		exprs = append(exprs, users[groups[key][0]])
	}
	table, err := addrs.Build(united)
	if err != nil {
		return fmt.Errorf("classifying addresses: %w", err)
	}
	a.table = table
	a.truth = make([][]uint64, len(table.Members))
	for class, members := range table.Members {
		a.truth[class] = make([]uint64, (len(a.exprs)+63)/64)
		for _, m := range members {
			for _, e := range exprs[m] {
				a.truth[class][e/64] |= 1 << (e % 64)
			}
		}
	}
	return nil
}

// Holds reports whether an expression holds for a class.
func (a *addresses) Holds(class, expr int) bool { return a.truth[class][expr/64]>>(expr%64)&1 == 1 }

// part returns the component with the address table, and with the constants that the C program needs to read it.
func (a *addresses) part() component {
	p := component{constants: map[string]any{}, shapes: map[string]image.Shape{}}
	p.constants["classify_src"] = a.srcClass
	p.constants["classify_dst"] = a.dstClass
	p.constants["dynamic_src_sets"] = a.srcDynamic
	p.constants["dynamic_dst_sets"] = a.dstDynamic
	p.constants["local_set"] = a.localSet
	a.table4(&p)
	a.table6(&p)
	return p
}

// Count returns the number of classes.
func (a *addresses) Count() int { return len(a.table.Members) }
