// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// The layout of struct name_bucket of bpf/names.h.
const (
	nameSlots      = 5
	nameBucketSize = 64
	nameSets       = 8 * nameSlots
	nameMore       = nameSets + 4*nameSlots

	maxNameProbes = 8
)

// hashedName is the hash of a name, and the sets that contain the name, a bit each.
type hashedName struct {
	hash uint64
	sets uint32
}

// nameTable is a hash table of buckets. Each bucket is one cache line. The search for a name begins at the bucket that its hash selects. It continues
// as long as a bucket has the mark that more names follow. The buckets are in the order of hashes, so a sorted list fills the table from front to
// back.
type nameTable struct {
	names  int
	homes  int // the number of buckets that a hash can select; further buckets after them take names that do not fit into the last ones
	memory []byte
}

func (t *nameTable) buckets() int { return len(t.memory) / nameBucketSize }

// newNameTable makes the table, with 3 of 4 slots in use. It returns false if a name would be too far from the bucket that its hash selects. Names
// with equal hashes become one entry. With a list of a million names, the probability of that is 2^-25.
func newNameTable(list []hashedName) (nameTable, bool) {
	list = merged(list)
	t := nameTable{names: len(list), homes: max(1, len(list)*4/(3*nameSlots))}
	t.memory = make([]byte, (t.homes+maxNameProbes)*nameBucketSize)
	next := 0 // number of the next free slot
	for _, n := range list {
		home := int(n.hash >> 32 * uint64(t.homes) >> 32)
		next = max(next, home*nameSlots)
		bucket := next / nameSlots
		if bucket-home >= maxNameProbes {
			return t, false
		}
		t.put(bucket, next%nameSlots, n)
		for b := home; b < bucket; b++ {
			t.memory[b*nameBucketSize+nameMore] = 1
		}
		next++
	}
	return t, true
}

// merged sorts names by hash, and merges entries with the same hash. The merged entry gets the sets of all of them.
func merged(list []hashedName) []hashedName {
	slices.SortFunc(list, func(a, b hashedName) int { return cmp.Compare(a.hash, b.hash) })
	out := list[:0]
	for _, n := range list {
		if last := len(out) - 1; last >= 0 && out[last].hash == n.hash {
			out[last].sets |= n.sets
		} else {
			out = append(out, n)
		}
	}
	return out
}

func (t *nameTable) put(bucket, slot int, n hashedName) {
	b := t.memory[bucket*nameBucketSize:]
	binary.NativeEndian.PutUint64(b[8*slot:], n.hash)
	binary.NativeEndian.PutUint32(b[nameSets+4*slot:], n.sets)
}
