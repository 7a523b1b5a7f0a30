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

// hashedName is the hash of a name, and the sets that list it, a bit each.
type hashedName struct {
	hash uint64
	sets uint32
}

// nameTable is a hash table of buckets, one cache line each. The search for a name begins at the bucket of its hash,
// and goes on while a bucket says so. Buckets are in the order of hashes, so a sorted list fills the table from front
// to back.
type nameTable struct {
	names  int
	homes  int // buckets behind them take what the last of them cannot
	memory []byte
}

func (t *nameTable) buckets() int { return len(t.memory) / nameBucketSize }

// newNameTable makes the table with 3 of 4 slots in use. It reports false if a name would be too far from the bucket of
// its hash. Names with equal hashes become one: among 2^25 lists of a million names there is one such pair.
func newNameTable(list []hashedName) (nameTable, bool) {
	list = merged(list)
	t := nameTable{names: len(list), homes: max(1, len(list)*4/(3*nameSlots))}
	t.memory = make([]byte, (t.homes+maxNameProbes)*nameBucketSize)
	next := 0 // slot
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

// merged sorts names by hash, and unites the sets of names that occur more than once.
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
