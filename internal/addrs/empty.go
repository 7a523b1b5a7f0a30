package addrs

// Empty reports whether all addresses have class 0.
func (t *Table4) Empty() bool { return len(t.runs) == 0 }

// HasBackground reports whether any address without a line has a class other than 0.
func (t *Table4) HasBackground() bool {
	for _, class := range t.background {
		if class != 0 {
			return true
		}
	}
	return false
}

// Empty reports whether all addresses have class 0.
func (t *Table6) Empty() bool { return len(t.Lengths) == 0 }
