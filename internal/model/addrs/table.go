package addrs

// Table maps every address to its class: two addresses have the same class when they are in the same sets.
type Table struct {
	// Members lists for each class the sets that its addresses are in, as ascending indexes into the argument of
	// Build. Class 0 is in none, and exists even when no address is left for it.
	Members [][]int32

	V4 *Table4
	V6 *Table6
}

// Build makes the table of the sets. The sets may be released afterwards.
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
