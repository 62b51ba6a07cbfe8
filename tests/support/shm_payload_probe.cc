// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
int main() {}
