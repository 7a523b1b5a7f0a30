package policy

import _ "embed"

// Schema is the JSON schema (draft 2020-12) of a policy file, with which editors complete and explain keys. It accepts
// every policy that Parse accepts, and refuses only part of the others: it knows no names of sets and rules, no
// families and no address arithmetic.
//
//go:embed schema.json
var Schema []byte
