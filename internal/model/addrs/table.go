// SPDX-License-Identifier: Apache-2.0

package addrs

// Table maps every address to its class. Two addresses have the same class if they are in the same sets.
type Table struct {
	// Members lists for each class the sets that contain its addresses, as ascending indexes into the argument of
	// Build. Class 0 is in no set. It exists even if no address has it.
	Members [][]int32

	V4 *Table4
	V6 *Table6
}

// Build returns the class table of the sets. The table does not refer to the sets.
func Build(sets []*Set) (*Table, error) {
	c := newCensus(len(sets))
	runs, err := sweep4(sets, c)
	if err != nil {
		return nil, err
	}
	prefixes, err := sweep6(sets, c)
	if err != nil {
		return nil, err
	}
	v6, err := newTable6(prefixes)
	if err != nil {
		return nil, err
	}
	return &Table{Members: c.members, V4: newTable4(runs), V6: v6}, nil
}
