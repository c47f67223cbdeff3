//! Compilation of kernels into pipelines, each when it is first needed.

use crate::{
    Error, Wgpu,
    kernel::{Constants, Kernel, ModuleKey, TextOptions, function::FunctionText},
};

impl Wgpu {
    /// Returns the pipeline of a kernel with `windows` windows for each of its tensors, the function that it applies if it
    /// is an elementwise one, and values for its `override` constants. Compiles it if it is new.
    pub(crate) fn pipeline(
        &self, kernel: &'static Kernel, windows: u32, function: Option<FunctionText>, constants: Constants,
    ) -> Result<wgpu::ComputePipeline, Error> {
        let mut compiled = self.compiled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let module_key = ModuleKey { kernel: kernel.name, function: function.map(|function| function.name), windows };
        let key = (module_key, constants);
        if let Some(pipeline) = compiled.pipelines.get(&key) {
            return Ok(pipeline.clone());
        }
        let failed = |error| match error {
            Error::Failed(log) => Error::Kernel { name: kernel.name, log },
            other => other,
        };
        let module = match compiled.modules.get(&module_key) {
            Some(module) => module.clone(),
            None => {
                let module =
                    self.capture_validation_error(|| self.module(kernel, windows, function)).map_err(failed)?;
                compiled.modules.insert(module_key, module.clone());
                module
            }
        };
        let values: Vec<(&str, f64)> = key.1.iter().map(|&(name, value)| (name, f64::from(value))).collect();
        let descriptor = wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &values,
                // Kernels initialise the workgroup memory that they read.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        };
        let pipeline =
            self.capture_validation_error(|| self.device().create_compute_pipeline(&descriptor)).map_err(failed)?;
        compiled.pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn module(&self, kernel: &Kernel, windows: u32, function: Option<FunctionText>) -> wgpu::ShaderModule {
        let text = if cfg!(target_family = "wasm") { Kernel::browser_text } else { Kernel::text };
        let options =
            TextOptions { windows, subgroups: self.has_subgroups(), conversions: self.conversions(), function };
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(text(kernel, options).into()),
        };
        let checks = if self.is_checked() {
            wgpu::ShaderRuntimeChecks::checked()
        } else {
            wgpu::ShaderRuntimeChecks::unchecked()
        };
        // SAFETY: kernels stay inside their buffers for every valid descriptor, end all loops, and divide by no zero;
        // the conformance suite runs them with checks too, and compares.
        unsafe { self.device().create_shader_module_trusted(descriptor, checks) }
    }
}
