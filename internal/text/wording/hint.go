package wording

// HintError is an error with its remedy. Code that has to tell errors apart has types of its own.
type HintError struct{ Problem, Remedy string }

// Hinted makes a HintError.
func Hinted(problem, remedy string) *HintError { return &HintError{problem, remedy} }

func (e *HintError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *HintError) Hint() string { return e.Remedy }
