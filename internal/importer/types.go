// SPDX-License-Identifier: Apache-2.0

package importer

import "github.com/floodwall/floodwall/internal/importer/saved"

// Source is a file that was read: its name, for messages, and its bytes.
type Source = saved.Source

// Remark is a remark about a line of the input, or about several lines to which the same remark applies.
type Remark = saved.Remark

// InputError is the error for an input that cannot be read. It has the place and the cause. Its Hint is a remedy.
type InputError = saved.InputError
