enable f16;
enable wgpu_cooperative_matrix;

// Cooperative matrices of 8×8: types for coop.wgsl, which follow its text because their extensions are enabled here.

const SIDE: u32 = 8u;
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;
