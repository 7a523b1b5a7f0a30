// SPDX-License-Identifier: Apache-2.0

package guard

// Counts are the operations that a run of a program executed.
type Counts struct {
	Instructions int `json:"instructions"` // all of them; a load of a 64-bit constant is one
	Loads        int `json:"loads"`        // from memory, with the stack
	Stores       int `json:"stores"`       // to memory other than the stack
	StackStores  int `json:"stack-stores"` // to the stack
	Shared       int `json:"shared"`       // stores and atomics to memory that all CPUs share
	Atomics      int `json:"atomics"`      // atomic read-modify-write operations
	Calls        int `json:"calls"`        // of functions of the program, and tail calls
	Helpers      int `json:"helpers"`      // calls of the kernel's functions. Their own instructions are not counted.
}

// Plus returns the sum of two runs.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		c.Instructions + o.Instructions, c.Loads + o.Loads, c.Stores + o.Stores, c.StackStores + o.StackStores, c.Shared + o.Shared,
		c.Atomics + o.Atomics, c.Calls + o.Calls, c.Helpers + o.Helpers,
	}
}

// Over returns the mean of the sum of n runs, rounded.
func (c Counts) Over(n int) Counts {
	mean := func(sum int) int { return (sum + n/2) / n }
	return Counts{
		mean(c.Instructions), mean(c.Loads), mean(c.Stores), mean(c.StackStores), mean(c.Shared), mean(c.Atomics), mean(c.Calls), mean(c.Helpers),
	}
}
