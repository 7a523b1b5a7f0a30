// Package operate is what the commands and the API do with this host. In: an instance (internal/control), the state directory,
// and what somebody asks for. Out: the values that commands print and that the API answers with. So both give the same answer.
//
// Read host.go first. apply.go applies, with a copy for the next boot (saving.go), and late.go knows of devices that appear late;
// block.go changes dynamic sets, and entries.go lists them; explain.go and capture.go are about packets. problem.go turns errors into what people and programs read of them; health.go says whether the policy
// is in force.
package operate
