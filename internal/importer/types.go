package importer

import "github.com/floodwall/floodwall/internal/importer/saved"

// Source is a file as it was read: a name for messages, and the bytes.
type Source = saved.Source

// Remark is something about a line of the input, or about several lines that have the same said of them.
type Remark = saved.Remark

// InputError is an input that cannot be read. It has the place, the cause, and a remedy as its Hint.
type InputError = saved.InputError
