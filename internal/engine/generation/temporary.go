// This file has rules that stand beside the operator's policy for a time: each has an owner, a name, and an end that the kernel
// keeps. In: rules in the policy's language. Out: a program with them before all rules of the policy, or a ruleset of netfilter of their
// own. internal/engine/control puts them into the kernel, in one transaction under its lock: in XDP it renews the program of the generation, which
// goes on with all that was counted and collected; in netfilter they have a table, or chains, beside those of the policy.

package generation
